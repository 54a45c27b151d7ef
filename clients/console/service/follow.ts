import { Output } from "../model/output.ts";
import { Gone, Refused } from "./call.ts";
import { type ExecutionRecord, getExecution, getJob } from "./records.ts";

/** A job as it is followed. */
export interface Followed {
  id: string;
  record: ExecutionRecord | undefined;
  /** Why it waits, while it is queued. */
  waits: string | undefined;
  output: Output;
  /** Grows with the output, which is one object. */
  version: number;
}

export const isEnded = (record: ExecutionRecord | undefined): boolean =>
  record !== undefined && record.status !== "queued" && record.status !== "running";

const pauseMs = 1000;
/** One task may take 100 ms. */
const sliceLength = 65_536;

/** Follows a job to its end, through outages of the service. */
export async function follow(
  id: string,
  signal: AbortSignal,
  show: (followed: Followed) => void,
): Promise<void> {
  const output = new Output();
  let followed: Followed = { id, record: undefined, waits: undefined, output, version: 0 };
  const set = (next: Partial<Followed>): void => {
    if (signal.aborted) return;
    followed = { ...followed, ...next, version: followed.version + 1 };
    show(followed);
  };
  set({});
  for (;;) {
    try {
      const record = await getExecution(id, signal);
      const waits = record.status === "queued" ? (await getJob(id, signal)).message : undefined;
      if (isEnded(record)) {
        await fill(output, record, signal);
        set({ record, waits: undefined });
        return;
      }
      set({ record, waits });
    } catch (error) {
      if (signal.aborted) return;
      const isPassing =
        error instanceof Gone || (error instanceof Refused && error.problem.status >= 429);
      if (!isPassing) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    if (signal.aborted) return;
  }
}

/** Takes over the streams of a record in pieces, so that a large one does not hold up the page. */
async function fill(output: Output, record: ExecutionRecord, signal: AbortSignal): Promise<void> {
  for (const stream of ["stdout", "stderr"] as const) {
    const text = record[stream];
    for (let from = 0; from < text.length && !signal.aborted; from += sliceLength) {
      output.append(stream, text.slice(from, from + sliceLength));
      if (text.length > sliceLength) await new Promise((resolve) => setTimeout(resolve));
    }
  }
}
