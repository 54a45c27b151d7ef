import type { LogChunk } from "../../shared/wire/lease.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import { type Clock, OVER } from "../waiting/clock.ts";
import { type Lease, LeaseDropped } from "../lease/leases.ts";
import type { StreamName } from "../sandbox/types.ts";

/** Reports the run to the API while the code runs, and never delays the code. */
export type LiveReport = {
  readonly started: (jobRef: string) => void;
  readonly output: (stream: StreamName, bytes: Uint8Array) => void;
  /** The code has ended: no more chunks are sent; the result contains all output. */
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
const CHUNK_EVERY_MS = 1000;
const CHUNK_MAX_BYTES = 256 * 1024;

export function createLiveReport({ client, clock }: LiveReportDeps, lease: Lease): LiveReport {
  const { lease_id } = lease.job;
  const end = new AbortController();
  const closing = new AbortController();
  const signal = AbortSignal.any([lease.drop.signal, closing.signal]);
  const tails = { stdout: createTail("stdout"), stderr: createTail("stderr") };
  const tasks: Promise<void>[] = [];

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
    await client.started(lease_id, { job_ref: jobRef }, signal);
  }

  async function sendChunks(): Promise<void> {
    while (!end.signal.aborted) {
      await clock.sleep(CHUNK_EVERY_MS, end.signal).catch(() => {});
      for (const tail of [tails.stdout, tails.stderr]) {
        for (let next = tail.take(); next && !end.signal.aborted; next = tail.take()) {
          await client.logs(lease_id, next, signal);
        }
      }
    }
  }

  return {
    started: (jobRef) => {
      tasks.push(
        attempt(() => sendStarted(jobRef)),
        attempt(sendChunks),
      );
    },
    output: (stream, bytes) => tails[stream].add(bytes),
    ended: () => end.abort(OVER),
    close: async () => {
      end.abort(OVER);
      closing.abort(OVER);
      await Promise.all(tasks);
    },
  };
}

/** The bytes of one stream that have not been sent yet. */
function createTail(stream: StreamName) {
  let waiting: Uint8Array[] = [];
  let offset = 0;

  function take(): LogChunk | null {
    if (waiting.length === 0) return null;
    const bytes = Buffer.concat(waiting);
    const head = bytes.subarray(0, CHUNK_MAX_BYTES);
    const rest = bytes.subarray(head.length);
    const chunk = { stream, offset, data_base64: head.toString("base64") };
    waiting = rest.length > 0 ? [rest] : [];
    offset += head.length;
    return chunk;
  }

  return { add: (bytes: Uint8Array) => waiting.push(bytes), take };
}
