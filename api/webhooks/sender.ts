import type { Deps, Subscription } from "../deps.ts";
import type { StoredEvent } from "../domain/webhooks/event.ts";
import { rideOut } from "../jobs/ride-out.ts";
import {
  claimDue,
  type DeliveryRow,
  eventsOf,
  nextDue,
  recordCall,
  releaseCall,
} from "../store/webhooks/deliveries.ts";
import { fanOut, newEvents } from "../store/webhooks/events.ts";
import { call, type Post } from "./call.ts";
import { receiversOf } from "./receivers.ts";

export interface SenderLimits {
  /** Calls at the same time. */
  atOnce: number;
  /** A receiver that has this many calls at the moment gets no more. */
  each: number;
  /** Time for one call. */
  timeoutMs: number;
  /** From 0 to 1. */
  random: () => number;
  /** Called when a call ends that others had to wait for. */
  onPlace: () => void;
}

/** Workers may wait for six answers at a time. */
const defaults: SenderLimits = {
  atOnce: 6,
  each: 4,
  timeoutMs: 15_000,
  random: Math.random,
  onPlace: () => {},
};
/** Time for a call's outcome to reach the database. */
const marginMs = 45_000;
const eventsAtOnce = 200;

export interface Sender {
  /**
   * Gives new events their deliveries, and begins up to `most` calls that are due.
   *
   * @returns The number of begun calls; if none, when the next one is due (epoch ms).
   */
  sendDue(most?: number): Promise<{ begun: number; dueAt: number | undefined }>;
  /** Resolves when one of the calls that are being made ends. */
  oneEnded(): Promise<unknown>;
  isBusy(): boolean;
  /** Breaks off its calls. They are made again by the next sender. */
  stop(): Promise<void>;
}

/** Makes the calls to receivers. Several senders may serve one database. */
export function webhookSender(deps: Deps, post: Post, limits: Partial<SenderLimits> = {}): Sender {
  const { db, log, now } = deps;
  const { atOnce, each, timeoutMs, random, onPlace } = { ...defaults, ...limits };
  const stopping = new AbortController();
  /** Calls that are being made, with their receivers. */
  const calls = new Map<Promise<void>, string>();
  let isPlaceWanted = false;

  async function make(delivery: DeliveryRow, event: StoredEvent): Promise<void> {
    const signal = AbortSignal.any([stopping.signal, AbortSignal.timeout(timeoutMs)]);
    const outcome = await call(deps, post, delivery, event, random, signal);
    const isBrokenOff = stopping.signal.aborted && outcome.status === "pending";
    await rideOut(deps, () =>
      isBrokenOff ? releaseCall(db, delivery, now()) : recordCall(db, delivery, outcome, now()),
    );
  }

  function begin(delivery: DeliveryRow, event: StoredEvent): void {
    const made = make(delivery, event)
      .catch((error: unknown) => log.error("webhooks: {error}", { error }))
      .finally(() => {
        calls.delete(made);
        if (isPlaceWanted) onPlace();
      });
    calls.set(made, delivery.receiver);
  }

  async function fanOutNew(): Promise<void> {
    for (;;) {
      const events = await newEvents(db, eventsAtOnce);
      if (events.length === 0) return;
      const fanned = events.map((event) => ({ event, receivers: receiversOf(deps.config, event) }));
      await fanOut(db, fanned, now());
      if (events.length < eventsAtOnce) return;
    }
  }

  function callsByReceiver(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const receiver of calls.values()) counts.set(receiver, (counts.get(receiver) ?? 0) + 1);
    return counts;
  }

  return {
    async sendDue(most = Infinity) {
      await fanOutNew();
      const busy = callsByReceiver();
      const except = [...busy].filter(([, n]) => n >= each).map(([receiver]) => receiver);
      // A call that ends during the next query must wake the sender too.
      isPlaceWanted = except.length > 0;
      const dueAt = await nextDue(db, except);
      const free = Math.min(most, atOnce - calls.size);
      isPlaceWanted ||= free <= 0;
      const isDue = dueAt !== undefined && dueAt <= now();
      if (!isDue || free <= 0 || stopping.signal.aborted) return { begun: 0, dueAt };
      const claimed = await claimDue(db, {
        now: now(),
        until: now() + timeoutMs + marginMs,
        most: free,
        each,
        busy,
      });
      // The event must be on disk before a receiver hears of it.
      await db.durable();
      const events = await eventsOf(db, claimed);
      for (const delivery of claimed) {
        const event = events.get(delivery.eventSeq);
        if (event) begin(delivery, event);
      }
      return { begun: claimed.length, dueAt };
    },
    oneEnded: () => Promise.race(calls.keys()),
    isBusy: () => calls.size > 0,
    async stop() {
      stopping.abort();
      await Promise.all(calls.keys());
    },
  };
}

/** Wake-ups are hints; events of processes that died are found within this time. */
const backstopMs = 30_000;
const outageMs = 5_000;

/** Sends whenever it is woken or a call is due, until the signal aborts. */
export async function sendForever(
  sender: Sender,
  { log, now }: Deps,
  wakes: Subscription,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    let waitMs = backstopMs;
    try {
      const { begun, dueAt = Infinity } = await sender.sendDue();
      if (begun > 0) continue;
      // Deliveries that are due already wait for a free place: the end of a call wakes this loop too.
      if (dueAt > now()) waitMs = Math.min(waitMs, dueAt - now());
    } catch (error) {
      log.warn("webhooks wait for the database: {error}", { error });
      waitMs = outageMs;
    }
    await wakes.next(waitMs, signal);
  }
}

/**
 * Sends up to `most` deliveries, also those of events that come while it waits for a slow receiver.
 *
 * @param nextWake Resolves at the next hint that there are new events.
 * @returns When the next delivery is due (epoch ms); undefined if none is.
 */
export async function sendSome(
  sender: Sender,
  most: number,
  nextWake: () => Promise<void> = () => new Promise(() => {}),
): Promise<number | undefined> {
  let left = most;
  for (;;) {
    const woken = nextWake();
    const { begun, dueAt } = await sender.sendDue(left);
    left -= begun;
    if (begun > 0 && left > 0) continue;
    if (!sender.isBusy()) return dueAt;
    await Promise.race([sender.oneEnded(), woken]);
  }
}
