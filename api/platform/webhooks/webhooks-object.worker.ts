import { DurableObject, waitUntil } from "cloudflare:workers";
import type { Deps } from "../../deps.ts";
import { sendSome, webhookSender } from "../../webhooks/sender.ts";
import { postFromWorker } from "./post.worker.ts";

/** The part of a Durable Object binding to `Webhooks` that the API needs. */
export interface WebhooksObjects {
  getByName(name: string): { wake(): Promise<void> };
}

/** Wakes the object that sends. The cron trigger repeats a wake-up that is lost. */
export function wakeObject(objects: WebhooksObjects, { log }: Pick<Deps, "log">): Promise<void> {
  return objects
    .getByName("webhooks")
    .wake()
    .catch((error: unknown) => log.warn("cannot wake the Webhooks object: {error}", { error }));
}

export function wakeObjectLater(objects: WebhooksObjects, deps: Pick<Deps, "log">): void {
  waitUntil(wakeObject(objects, deps));
}

/** Small enough to stay within the platform's limits of requests and time. */
const callsPerRun = 100;
/** After a run that broke off, such as in an outage of the database. */
const againMs = 30_000;

/** Sends webhooks by its alarm, one object for the whole deployment. */
export abstract class SendingObject extends DurableObject {
  /** The same service as that of requests, in the object's own isolate. */
  protected abstract service(): Promise<Deps>;

  /** Resolved by the next wake-up, for a run that waits for a slow receiver: no alarm interrupts it. */
  private woken = Promise.withResolvers<void>();

  async wake(): Promise<void> {
    this.woken.resolve();
    const at = await this.ctx.storage.getAlarm();
    if (at === null || at > Date.now()) await this.ctx.storage.setAlarm(Date.now());
  }

  async alarm(): Promise<void> {
    const deps = await this.service();
    let next: number | undefined = Date.now() + againMs;
    try {
      const sender = webhookSender(deps, postFromWorker(deps.config));
      next = await sendSome(sender, callsPerRun, () => {
        this.woken = Promise.withResolvers();
        return this.woken.promise;
      });
    } catch (error) {
      deps.log.warn("webhooks wait for the database: {error}", { error });
    }
    // A wake-up during the run has set its own alarm, which comes first.
    const set = await this.ctx.storage.getAlarm();
    if (next !== undefined && (set === null || set > next)) await this.ctx.storage.setAlarm(next);
  }
}
