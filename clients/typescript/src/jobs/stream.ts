import { pathOf } from "../transport/ask.ts";
import { ConnectionError, notAirlock } from "../transport/errors.ts";
import type { ExecutionRecord, ResultItem, ToolCall } from "../generated.ts";
import { pauseMs, sleep } from "../transport/pause.ts";
import { readLines } from "../transport/read-lines.ts";
import type { CallOptions, Transport } from "../transport/transport.ts";

type Common = { job_id: string; attempt: number; at: string };
type Named<Name extends string, Data> = { id?: string; event: Name; data: Common & Data };

/** What happens to a job. Newer services may send other events: ignore what you do not know. */
export type JobEvent =
  | Named<"status", { status: "queued"; reason: string; position: number }>
  | Named<"status", { status: "running"; agent: string | null }>
  | Named<"stdout" | "stderr", { text: string }>
  | Named<"display", ResultItem>
  | Named<"tool_call", ToolCall>
  | Named<"held", { stream: "stdout" | "stderr"; offset: number }>
  | Named<"truncated", { stream: "stdout" | "stderr" }>
  | Named<"retry", object>
  | Named<"end", Omit<ExecutionRecord, "stdout" | "stderr" | "results"> & { output_url?: string }>;

export interface StreamOptions extends CallOptions {
  /** The id of an event: only what came after it. */
  after?: string | undefined;
}

/**
 * The events of a job, from its submission to its `end`, also of a job that has ended. After a break
 * of the connection it goes on where it was; it throws once `retries` breaks in a row brought nothing.
 */
export type Stream = (jobId: string, options?: StreamOptions) => AsyncGenerator<JobEvent, void>;

/** The service sends an empty line more often than this. */
const SILENCE_MS = 60_000;

export function stream({ open, retries }: Pick<Transport, "open" | "retries">): Stream {
  return async function* events(jobId, { after, ...call } = {}) {
    const path = `${pathOf("jobs", jobId)}/events`;
    const init = { headers: { Accept: "application/x-ndjson" } };
    let cursor = after;
    for (let breaks = 0; ;) {
      const query = cursor === undefined ? "" : `?after=${encodeURIComponent(cursor)}`;
      const answer = await open(path + query, init, call);
      // The cursor is that of the end.
      if (answer.status === 204 || !answer.body) return;
      let isFruitless = true;
      try {
        for await (const line of readLines(answer.body, SILENCE_MS)) {
          breaks = 0;
          isFruitless = false;
          if (line === "") continue;
          const event = parse(line);
          cursor = event.id ?? cursor;
          yield event;
          if (event.event === "end") return;
        }
        if (isFruitless) throw new ConnectionError("The events ended before the job's end.");
      } catch (error) {
        call.signal?.throwIfAborted();
        if (!(error instanceof ConnectionError) || ++breaks > (call.retries ?? retries)) {
          throw error;
        }
      }
      await sleep(pauseMs(Math.max(1, breaks)), call.signal);
    }
  };
}

function parse(line: string): JobEvent {
  try {
    return JSON.parse(line) as JobEvent;
  } catch {
    throw new ConnectionError(notAirlock);
  }
}
