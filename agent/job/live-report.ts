import type { StreamName } from "../../shared/wire/output.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import { createChangeSignal } from "../waiting/change-signal.ts";
import { type Clock, OVER } from "../waiting/clock.ts";
import { type Lease, LeaseDropped } from "../lease/leases.ts";
import type { DisplayItem } from "../sandbox/job.ts";
import { toResultItem } from "./result.ts";
import { createUnsent } from "./unsent.ts";

/** Reports the run to the API while the code runs, and never delays the code. */
export type LiveReport = {
  readonly started: (jobRef: string) => void;
  readonly output: (stream: StreamName, bytes: Uint8Array) => void;
  readonly item: (item: DisplayItem) => void;
  /** The first so many items are stored: somebody follows the job. */
  readonly itemsSent: () => number;
  /** The code has ended: no more output is sent; the result contains all of it. */
  readonly ended: () => void;
  /** Aborts posts that are still pending. */
  readonly close: () => Promise<void>;
};

export type LiveReportDeps = {
  readonly client: Pick<Client, "started" | "logs" | "items">;
  readonly clock: Clock;
};

/** Code that ends sooner reports only its result: two posts at once would delay each other. */
const STARTED_AFTER_MS = 50;
/** Pause between posts of output that nobody follows. */
const UNFOLLOWED_EVERY_MS = 1000;
/** Shortest time between two posts of output that somebody follows. */
const FOLLOWED_EVERY_MS = 100;
/** Each has up to a megabyte. */
const ITEMS_AT_ONCE = 8;

export function createLiveReport({ client, clock }: LiveReportDeps, lease: Lease): LiveReport {
  const { lease_id } = lease.job;
  const { followed } = lease;
  const end = new AbortController();
  const closing = new AbortController();
  const unsent = createUnsent();
  const written = createChangeSignal();
  const tasks: Promise<void>[] = [];
  const items: DisplayItem[] = [];
  let itemsSent = 0;
  let postedMs = -Infinity;

  /** Ignores failures, except a lost lease: then it ends the run. */
  async function attempt(task: (signal: AbortSignal) => Promise<void>): Promise<void> {
    try {
      await task(AbortSignal.any([lease.drop.signal, closing.signal]));
    } catch (error) {
      const isLost = error instanceof ApiError && error.kind === "lease_lost";
      if (isLost && !end.signal.aborted)
        lease.drop.abort(new LeaseDropped("the API gave the lease up"));
    }
  }

  /** Code that ends within the wait costs no post and no timer but this one. */
  async function report(jobRef: string): Promise<void> {
    const isFollowed = followed.isOn();
    if (isFollowed) tasks.push(attempt(sendOutput));
    await clock.sleep(STARTED_AFTER_MS, end.signal).catch(() => {});
    if (end.signal.aborted) return;
    tasks.push(attempt((signal) => sendStarted(jobRef, signal)));
    if (!isFollowed) tasks.push(attempt(sendOutput));
  }

  async function sendStarted(jobRef: string, signal: AbortSignal): Promise<void> {
    followed.learn(await client.started(lease_id, { job_ref: jobRef }, signal));
  }

  async function sendOutput(signal: AbortSignal): Promise<void> {
    while (!end.signal.aborted) {
      await (followed.isOn() ? whileFollowed() : whileUnfollowed());
      for (let parts = unsent.take(); parts && !end.signal.aborted; parts = unsent.take()) {
        postedMs = clock.nowMs();
        followed.learn(await client.logs(lease_id, { parts }, signal));
        if (followed.isOn()) break;
      }
      if (followed.isOn() && !end.signal.aborted) await sendItems(signal);
    }
  }

  async function sendItems(signal: AbortSignal): Promise<void> {
    const next = items.slice(itemsSent, itemsSent + ITEMS_AT_ONCE);
    if (next.length === 0) return;
    postedMs = clock.nowMs();
    followed.learn(await client.items(lease_id, { items: next.map(toResultItem) }, signal));
    itemsSent += next.length;
  }

  /** Waits for output, and for the time since the last post. */
  async function whileFollowed(): Promise<void> {
    await written.waitUntil(
      () => !unsent.isEmpty() || itemsSent < items.length || end.signal.aborted,
    );
    const waitMs = postedMs + FOLLOWED_EVERY_MS - clock.nowMs();
    if (waitMs > 0) await clock.sleep(waitMs, end.signal).catch(() => {});
  }

  /** Waits for a second, or until somebody follows the job. */
  async function whileUnfollowed(): Promise<void> {
    const begun = new AbortController();
    using _listening = followed.subscribe(() => begun.abort(OVER));
    const over = AbortSignal.any([end.signal, begun.signal]);
    await clock.sleep(UNFOLLOWED_EVERY_MS, over).catch(() => {});
  }

  function finish(): void {
    end.abort(OVER);
    written.notify();
  }

  return {
    started: (jobRef) => void tasks.push(report(jobRef)),
    output: (stream, bytes) => {
      unsent.add(stream, bytes);
      written.notify();
    },
    item: (item) => {
      items.push(item);
      written.notify();
    },
    itemsSent: () => itemsSent,
    ended: finish,
    close: async () => {
      finish();
      closing.abort(OVER);
      for (const task of tasks) await task;
    },
  };
}
