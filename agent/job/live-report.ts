import type { StreamName } from "../../shared/wire/output.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import { createChangeSignal } from "../waiting/change-signal.ts";
import { type Clock, OVER } from "../waiting/clock.ts";
import { type Lease, LeaseDropped } from "../lease/leases.ts";
import type { CallAnswer, CallItem, DisplayItem } from "../sandbox/job.ts";
import { createAnswers } from "./answers.ts";
import { toRunItem } from "./result.ts";
import { createUnsentItems } from "./unsent-items.ts";
import { createUnsent } from "./unsent.ts";

/** Reports the run to the API while the code runs, and never delays the code. */
export type LiveReport = {
  readonly started: (jobRef: string) => void;
  readonly output: (stream: StreamName, bytes: Uint8Array) => void;
  readonly item: (item: DisplayItem) => void;
  /** Brings a call to the API, and its answer back. */
  readonly call: (call: CallItem, answer: (given: CallAnswer) => void) => void;
  /** Items up to this number are stored. */
  readonly lastItemSent: () => number;
  /** The code has ended: no more output is sent; the result contains all of it. */
  readonly ended: () => void;
  /** Aborts posts that are still pending. */
  readonly close: () => Promise<void>;
};

export type LiveReportDeps = {
  readonly client: Pick<Client, "started" | "logs" | "items" | "answers">;
  readonly clock: Clock;
};

/** Code that ends sooner reports only its result: two posts at once would delay each other. */
const STARTED_AFTER_MS = 50;
/** Pause between posts of output that nobody follows. */
const UNFOLLOWED_EVERY_MS = 1000;
/** Shortest time between two posts of output that somebody follows. */
const FOLLOWED_EVERY_MS = 100;

export function createLiveReport({ client, clock }: LiveReportDeps, lease: Lease): LiveReport {
  const { lease_id } = lease.job;
  const { followed } = lease;
  const end = new AbortController();
  const closing = new AbortController();
  const unsent = createUnsent();
  const written = createChangeSignal();
  const tasks: Promise<void>[] = [];
  const answers = createAnswers(client, lease_id);
  const items = createUnsentItems(async (next, signal) => {
    const report = { items: next.map(toRunItem) };
    followed.learn(await client.items(lease_id, report, signal));
  });
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
      if (!followed.isOn() || end.signal.aborted || items.isEmpty()) continue;
      postedMs = clock.nowMs();
      await items.send(signal);
    }
  }

  /** Waits for output, and for the time since the last post. */
  async function whileFollowed(): Promise<void> {
    await written.waitUntil(() => !unsent.isEmpty() || !items.isEmpty() || end.signal.aborted);
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
      items.add(item);
      written.notify();
    },
    call: (call, answer) => {
      items.add(call);
      tasks.push(attempt(async (signal) => items.sendUpTo(call.number, signal)));
      if (!answers.expect(call.number, answer)) return;
      tasks.push(attempt(async (signal) => answers.fetch(AbortSignal.any([signal, end.signal]))));
    },
    lastItemSent: items.lastSent,
    ended: finish,
    close: async () => {
      finish();
      closing.abort(OVER);
      for (const task of tasks) await task;
    },
  };
}
