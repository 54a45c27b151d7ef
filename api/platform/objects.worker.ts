import type { Logger } from "@logtape/logtape";
import { DurableObject, type ServerSocket, waitUntil } from "cloudflare:workers";
import { describeError } from "../../shared/log-line.ts";
import type { Deps, Notifier, Topic } from "../deps.ts";
import { sendSome, webhookSender } from "../webhooks/deliver.ts";
import { newSubscription, paced } from "./notifier.ts";
import { postFromWorker } from "./webhook-post.worker.ts";

/** The part of a Durable Object binding to `Wakes` that wake-ups need. */
export interface WakesObjects {
  getByName(name: string): {
    wake(topic: Topic): Promise<void>;
    fetch(url: string, init: RequestInit): Promise<Upgraded>;
  };
}
type Upgraded = Response & { webSocket?: (WebSocket & { accept(): void }) | null };

/** Delivers wake-ups across isolates through Durable Objects: one for each followed job, and one for all other topics. */
export function objectNotifier(objects: WakesObjects, log: Logger): Notifier {
  // A stub belongs to the request that made it.
  const wakes = (topics: Topic[]) => objects.getByName(topics.find(isOfFollowers) ?? "wakes");
  const lost = (error: unknown) =>
    log.warn("cannot use the Wakes object, querying the database instead: {reason}", {
      reason: describeError(error),
    });

  async function connect(topics: Topic[]): Promise<WebSocket> {
    const query = new URLSearchParams(topics.map((topic): [string, string] => ["topic", topic]));
    const headers = { Upgrade: "websocket" };
    const { status, webSocket } = await wakes(topics).fetch(`https://wakes/?${query.toString()}`, {
      headers,
    });
    if (!webSocket) throw new Error(`the object answered ${status}`);
    webSocket.accept();
    return webSocket;
  }

  return {
    notify(topic, delayMs = 0) {
      const sent = pause(delayMs).then(() => wakes([topic]).wake(topic));
      waitUntil(sent.catch(lost));
      return false;
    },
    subscribe(topics) {
      let isClosed = false;
      let connection: Promise<WebSocket | undefined> | undefined;
      const {
        waiter: { wake },
        subscription,
      } = newSubscription(() => {
        isClosed = true;
        void connection?.then((socket) => socket?.close());
      });
      const listen = async (): Promise<WebSocket | undefined> => {
        try {
          const socket = await connect(topics);
          socket.addEventListener("message", () => wake());
          socket.addEventListener("close", () => {
            connection = undefined;
          });
          // Notifications that came while the socket was being opened are lost, so the waiter must look.
          wake();
          return socket;
        } catch (error) {
          connection = undefined;
          if (!isClosed) lost(error);
          return undefined;
        }
      };
      connection = listen();
      return {
        ...subscription,
        next(timeoutMs, signal) {
          connection ??= listen();
          return subscription.next(timeoutMs, signal);
        },
      };
    },
  };
}

async function pause(ms: number): Promise<void> {
  if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
}

/** The two ends of a connection; the runtime defines it. */
declare const WebSocketPair: new () => { 0: WebSocket; 1: ServerSocket };

/**
 * Whether a topic wakes the clients that follow one job. Such a topic has an object of its own, which wakes
 * them at most ten times a second.
 */
const isOfFollowers = (topic: string): boolean => topic.startsWith("output:");
const restMs = 100;

/**
 * Passes wake-ups between isolates, which share no memory. Its only state is a socket for each waiter,
 * tagged with the waiter's topics. It sleeps while nothing happens. A lost wake-up does no harm: waiters
 * query the database at least every `backstopMs`.
 */
export class Wakes extends DurableObject {
  #tellFollowers: (() => void) | undefined;

  /** Accepts a waiter's socket. The query has `topic=…` once for each topic. */
  fetch(request: Request): Response {
    const { 0: webSocket, 1: ours } = new WebSocketPair();
    this.ctx.acceptWebSocket(ours, new URL(request.url).searchParams.getAll("topic"));
    return new Response(null, { status: 101, webSocket } as ResponseInit);
  }

  wake(topic: string): void {
    if (!isOfFollowers(topic)) return this.#send(topic);
    this.#tellFollowers ??= paced(() => this.#send(topic), restMs);
    this.#tellFollowers();
  }

  #send(topic: string): void {
    for (const socket of this.ctx.getWebSockets(topic)) {
      if (socket.readyState === open) socket.send("");
    }
  }

  /** The runtime requires this handler for accepted sockets, although nobody sends messages. */
  webSocketMessage(): void {}
}

const open = 1;

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
