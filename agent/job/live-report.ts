import type { OutputPart, StreamName } from "../../shared/wire/output.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import { createChangeSignal } from "../waiting/change-signal.ts";
import { type Clock, OVER } from "../waiting/clock.ts";
import { type Lease, LeaseDropped } from "../lease/leases.ts";
import { createUnsent } from "./unsent.ts";

/** Reports the run to the API while the code runs, and never delays the code. */
export type LiveReport = {
  readonly started: (jobRef: string) => void;
  readonly output: (stream: StreamName, bytes: Uint8Array) => void;
  /** The code has ended: no more output is sent; the result contains all of it. */
  readonly ended: () => void;
  /** Aborts posts that are still pending. */
  readonly close: () => Promise<void>;
};

export type LiveReportDeps = {
  readonly client: Pick<Client, "started" | "logs">;
  readonly clock: Clock;
};

/** Code that ends sooner reports only its result: two posts at once would delay each other. */
const STARTED_AFTER_MS = 50;
/** Pause between posts of output that nobody follows. */
const UNWATCHED_EVERY_MS = 1000;
/** Shortest time between two posts of output that somebody follows. */
const WATCHED_EVERY_MS = 100;

export function createLiveReport({ client, clock }: LiveReportDeps, lease: Lease): LiveReport {
  const { lease_id } = lease.job;
  const { followed } = lease;
  const end = new AbortController();
  const closing = new AbortController();
  const signal = AbortSignal.any([lease.drop.signal, closing.signal]);
  const unsent = createUnsent();
  const news = createChangeSignal();
  const tasks: Promise<void>[] = [];
  let postedMs = -Infinity;

  /** Ignores failures, except a lost lease: then it ends the run. */
  async function attempt(task: () => Promise<void>): Promise<void> {
    try {
      await task();
    } catch (error) {
      const isLost = error instanceof ApiError && error.kind === "lease_lost";
      if (isLost && !end.signal.aborted)
        lease.drop.abort(new LeaseDropped("the API gave the lease up"));
    }
  }

  async function sendStarted(jobRef: string): Promise<void> {
    await clock.sleep(STARTED_AFTER_MS, end.signal);
    followed.learn(await client.started(lease_id, { job_ref: jobRef }, signal));
  }

  async function sendOutput(): Promise<void> {
    while (!end.signal.aborted) {
      await (followed.isOn() ? whileFollowed() : whileUnfollowed());
      for (let parts = unsent.take(); parts && !end.signal.aborted; parts = unsent.take()) {
        await post(parts);
        if (followed.isOn()) break;
      }
    }
  }

  async function post(parts: OutputPart[]): Promise<void> {
    postedMs = clock.nowMs();
    followed.learn(await client.logs(lease_id, { parts }, signal));
  }

  /** Waits for output, and for the time since the last post. */
  async function whileFollowed(): Promise<void> {
    await news.waitUntil(() => !unsent.isEmpty() || end.signal.aborted);
    const waitMs = postedMs + WATCHED_EVERY_MS - clock.nowMs();
    if (waitMs > 0) await clock.sleep(waitMs, end.signal).catch(() => {});
  }

  /** Waits for a second, or until somebody follows the job. */
  async function whileUnfollowed(): Promise<void> {
    const begun = new AbortController();
    using _listening = followed.subscribe(() => begun.abort(OVER));
    const over = AbortSignal.any([end.signal, begun.signal]);
    await clock.sleep(UNWATCHED_EVERY_MS, over).catch(() => {});
  }

  function finish(): void {
    end.abort(OVER);
    news.notify();
  }

  return {
    started: (jobRef) => {
      tasks.push(
        attempt(() => sendStarted(jobRef)),
        attempt(sendOutput),
      );
    },
    output: (stream, bytes) => {
      unsent.add(stream, bytes);
      news.notify();
    },
    ended: finish,
    close: async () => {
      finish();
      closing.abort(OVER);
      await Promise.all(tasks);
    },
  };
}
