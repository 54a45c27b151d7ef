import { ConnectionError, ProblemError } from "../../typescript/src/errors.ts";
import type { ExecutionRecord, ResultItem, ToolCall } from "../../typescript/src/generated.ts";
import { Output, type Stream } from "../model/output.ts";
import { api, events } from "./client.ts";
import { getExecution, isEnded } from "./records.ts";

/** A job as it is followed. */
export interface Followed {
  id: string;
  record: ExecutionRecord | undefined;
  /** Why it waits, while it is queued. */
  waits: string | undefined;
  /** It was asked to end, and has not yet. */
  isCancelling: boolean;
  output: Output;
  /** What it has shown so far; the record has all at the end. */
  shown: ResultItem[];
  /** The calls of the caller's functions that were seen to be made. */
  calls: ShownToolCall[];
  /** It has more output than is sent while it runs: the rest comes at its end. */
  isHeld: boolean;
  /** Grows with the output, which is one object. */
  version: number;
}

const pauseMs = 1000;
/** How often a hidden page looks. */
const hiddenMs = 10_000;
/** Pieces of live output that come together are shown together. */
const frameMs = 40;
/** One task may take 100 ms. */
const sliceLength = 16_384;
const sliceMs = 30;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Does something until the page is hidden. Browsers open six connections to a service for all tabs together:
 * with six running jobs in tabs, each of which holds one, no further page would load.
 */
async function whileShown(
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const hidden = new AbortController();
  const look = (): void => {
    if (document.hidden) hidden.abort();
  };
  document.addEventListener("visibilitychange", look, { signal: hidden.signal });
  look();
  try {
    await work(AbortSignal.any([signal, hidden.signal]));
  } finally {
    hidden.abort();
  }
}

/** Waits until the page is shown, at most for a time. */
async function untilShown(ms: number): Promise<void> {
  const over = new AbortController();
  const shown = Promise.withResolvers<void>();
  const { signal } = over;
  document.addEventListener("visibilitychange", () => shown.resolve(), { once: true, signal });
  await Promise.race([shown.promise, pause(ms)]);
  over.abort();
}

/** Follows a job to its end, through outages of the service. */
export async function follow(
  id: string,
  signal: AbortSignal,
  show: (followed: Followed) => void,
): Promise<void> {
  let followed: Followed = {
    id,
    record: undefined,
    waits: undefined,
    isCancelling: false,
    output: new Output(),
    shown: [],
    calls: [],
    isHeld: false,
    version: 0,
  };
  let isShowing = false;
  let cursor: string | undefined;
  let isWhole = false;
  const set = (next: Partial<Followed>): void => {
    followed = { ...followed, ...next, version: followed.version + 1 };
    if (isShowing) return;
    isShowing = true;
    setTimeout(() => {
      isShowing = false;
      if (!signal.aborted) show(followed);
    }, frameMs);
  };

  const watch = async (shown: AbortSignal): Promise<void> => {
    for await (const { id: place, event, data } of events(id, { after: cursor, signal: shown })) {
      if (event === "stdout" || event === "stderr") {
        followed.output.append(event, data.text, Date.parse(data.at));
        set({});
      } else if (event === "status" && data.status === "queued") set({ waits: data.reason });
      else if (event === "status")
        set({ record: await getExecution(id, signal), waits: undefined });
      else if (event === "retry")
        set({
          record: await getExecution(id, signal),
          output: new Output(),
          shown: [],
          calls: [],
          isHeld: false,
        });
      else if (event === "display") set({ shown: [...followed.shown, data] });
      else if (event === "tool_call") set({ calls: [...followed.calls, toShown(data)] });
      else if (event === "held") set({ isHeld: true });
      else if (event === "end") isWhole = true;
      // After it is handled: if that failed, the event comes again.
      cursor = place ?? cursor;
    }
  };

  for (;;) {
    try {
      const record = await getExecution(id, signal);
      if (isEnded(record)) {
        const output = isWhole ? followed.output : await filled(record, signal);
        set({ record, waits: undefined, output, isHeld: false });
        return;
      }
      const job = await api.getJob({ id }, { signal });
      set({
        record,
        waits: record.status === "queued" ? job.message : undefined,
        isCancelling: job.cancel_requested === true,
      });
      await whileShown(signal, watch);
      if (isWhole) continue;
    } catch (error) {
      if (signal.aborted) return;
      if (!isPassing(error, followed.record !== undefined)) throw error;
    }
    await (document.hidden ? untilShown(hiddenMs) : pause(pauseMs));
    if (signal.aborted) return;
  }
}

/** Whether to try again. A refusal stays one, such as that of a key without the right or of a removed job. */
function isPassing(error: unknown, wasThere: boolean): boolean {
  if (error instanceof ProblemError) return error.status === 408 || error.status >= 429;
  return error instanceof ConnectionError || wasThere;
}

/** The streams of a record, taken over in pieces, so that a large one does not hold up the page. */
async function filled(record: ExecutionRecord, signal: AbortSignal): Promise<Output> {
  const output = new Output();
  const streams: Stream[] = ["stdout", "stderr"];
  let began = performance.now();
  for (const stream of streams) {
    const text = record[stream];
    for (let from = 0; from < text.length && !signal.aborted; from += sliceLength) {
      output.append(stream, text.slice(from, from + sliceLength));
      if (performance.now() - began < sliceMs) continue;
      await pause(0);
      began = performance.now();
    }
  }
  return output;
}

/** A call of a function of the caller, as text. */
export interface ShownToolCall {
  number: number;
  name: string;
  given: string;
  answer: { isError: boolean; text: string } | undefined;
}

interface ShownToolCalls {
  calls: ShownToolCall[];
  isEnded: boolean;
}

/** A page keeps this much of arguments and of an answer: each may have 1 MiB, in a thousand calls. */
const mostCharacters = 10_000;

const cut = (text: string): string =>
  text.length > mostCharacters ? `${text.slice(0, mostCharacters)}\n[…]` : text;
const asText = (value: unknown): string => cut(JSON.stringify(value, null, 2));

const toShown = (call: ToolCall): ShownToolCall => ({
  number: call.number,
  name: call.name,
  given: asText(call.arguments),
  answer: call.answer && toAnswer(call.answer),
});

const toAnswer = ({ result, error }: NonNullable<ToolCall["answer"]>) => ({
  isError: error !== undefined,
  text: error === undefined ? asText(result) : cut(error),
});

/** Reads all calls of a job: first each of them, then those that had no answer and what came after them. */
export function toolCallReader(
  id: string,
): (options: { signal: AbortSignal }) => Promise<ShownToolCalls> {
  const settled: ShownToolCall[] = [];
  return async ({ signal }) => {
    const found: ShownToolCall[] = [];
    for (;;) {
      const after = (found.at(-1) ?? settled.at(-1))?.number ?? 0;
      const { calls, status } = await api.listToolCalls({ id, after, all: true }, { signal });
      found.push(...calls.map(toShown));
      if (calls.length > 0) continue;
      const waits = found.findIndex(({ answer }) => answer === undefined);
      settled.push(...found.splice(0, waits === -1 ? found.length : waits));
      return { calls: [...settled, ...found], isEnded: isEnded({ status }) };
    }
  };
}
