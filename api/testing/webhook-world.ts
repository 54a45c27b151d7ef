import { afterEach, beforeEach, vi } from "vitest";
import { webhookTypes } from "../../shared/wire/client/webhook-type.ts";
import type { Config } from "../../shared/config/config.ts";
import type { Deps } from "../deps.ts";
import { postFromNode } from "../platform/webhooks/post.node.ts";
import { advance } from "../store/jobs/advance.ts";
import { submitExecution } from "../store/jobs/submit.ts";
import { keepWantedTypes } from "../store/webhooks/events.ts";
import { listDeliveries } from "../store/webhooks/list.ts";
import { type Sender, sendSome, webhookSender } from "../webhooks/sender.ts";
import { type Receiver, receiverSecret, startReceiver } from "./receiver.ts";
import { newExecution, openTempStore, type TempStore } from "./temp-store.ts";
import { testDeps } from "./test-deps.ts";

/** A store whose events are sent to a receiver. Tests set the clock. */
export class WebhookWorld {
  readonly store: TempStore;
  readonly receiver: Receiver;
  clock = Date.now();
  deps!: Deps;

  constructor(store: TempStore, receiver: Receiver) {
    this.store = store;
    this.receiver = receiver;
    this.configure({ webhook_endpoints: { main: this.endpoint() } });
  }

  passTo(time: number): void {
    this.clock = time;
    vi.setSystemTime(time);
  }

  endpoint(url = this.receiver.url) {
    return { url, secrets: [receiverSecret] };
  }

  /** Makes later senders use this configuration. */
  configure(config: Partial<Config>): void {
    const all = { webhook_private_addresses: ["127.0.0.1"], ...config };
    this.deps = testDeps(this.store.db, this.store.folder, () => this.clock, all);
  }

  /** Stores an execution and ends it; returns its id. */
  async end(columns: Parameters<typeof newExecution>[0] = {}): Promise<string> {
    const execution = newExecution(columns);
    await submitExecution(this.store.db, execution, 1000);
    await advance(this.store.db, { id: execution.id }, { kind: "cancel" }, this.clock);
    return execution.id;
  }

  sender(timeoutMs = 15_000): Sender {
    const post = postFromNode(this.deps.config);
    return webhookSender(this.deps, post, { timeoutMs, random: () => 0.5 });
  }

  /** Makes every call that is due now; returns when the next one is. */
  send(timeoutMs?: number): Promise<number | undefined> {
    return sendSome(this.sender(timeoutMs), 1000);
  }

  /** Newest first. */
  deliveries(): ReturnType<typeof listDeliveries> {
    const all = { status: undefined, endpoint: undefined, jobId: undefined, before: undefined };
    return listDeliveries(this.store.db, all, 100);
  }
}

/** Gives each test of a file a world of its own. */
export function eachInWebhookWorld(give: (world: WebhookWorld) => void): void {
  let world: WebhookWorld;
  beforeEach(async () => {
    // Receivers compare the time of a signature with their own.
    vi.useFakeTimers({ toFake: ["Date"] });
    const [store, receiver] = await Promise.all([openTempStore(), startReceiver()]);
    world = new WebhookWorld(store, receiver);
    await keepWantedTypes(store.db, webhookTypes);
    give(world);
  });
  afterEach(async () => {
    vi.useRealTimers();
    world.store.close();
    await world.receiver.close();
  });
}
