import type { Context } from "hono";
import { writeJsonInPieces } from "../../shared/json.ts";
import type { Deps } from "../deps.ts";
import { type LongField, longFields } from "../jobs/read-records.ts";
import type { AppEnv, HeldBytes } from "./context.ts";

/** Answers with JSON that may be large. Long fields of a record are read while it is sent. */
export async function jsonRecord(
  c: Context<AppEnv>,
  record: object,
  headers: Record<string, string> = {},
): Promise<Response> {
  const parts = await partsOf(record);
  const [only] = parts;
  if (parts.length > 1 || !(only instanceof Uint8Array) || only.length > smallBytes) {
    return sendParts(c, sent(parts, c.get("answer")), sumOf(parts), headers);
  }
  return c.body(only, 200, { ...headers, "Content-Type": "application/json" });
}

/** Items rendered at a time. A page of a thousand items may have gigabytes, so it is never whole in memory. */
const itemsAtOnce = 8;

/**
 * Answers with a page of a list, and reads its items while it sends them.
 *
 * @param found One row more than the limit, if there are more.
 */
export function jsonPage<Row>(
  c: Context<AppEnv>,
  found: Row[],
  { limit, offset }: { limit: number; offset: number },
  render: (some: Row[]) => Promise<unknown[]>,
): Response {
  const rows = found.slice(0, limit);
  const page = { limit, offset, has_more: found.length > limit, count: rows.length };
  const held = c.get("answer");
  async function* pieces(): Pieces {
    yield '{"items":[';
    for (let next = 0; next < rows.length; next += itemsAtOnce) {
      const items = await render(rows.slice(next, next + itemsAtOnce));
      const parts: Part[] = [];
      for (const [n, item] of items.entries()) {
        if (next + n > 0) parts.push(comma);
        parts.push(...(await partsOf(item)));
      }
      held.add(sumOf(parts));
      yield* sent(parts, held);
    }
    yield `],${JSON.stringify(page).slice(1)}`;
  }
  return sendParts(c, pieces(), 0);
}

/** What is in memory, or is read while it is sent. */
type Part = Uint8Array<ArrayBuffer> | LongField;
type Pieces = AsyncGenerator<string | Uint8Array<ArrayBuffer>>;

/** Less is not counted. Answers of events and files have less: they are read as their clients take them. */
const smallBytes = 64 * 1024;
/** Whose answer counts takes so many bytes in that time. A line of 64 kB/s takes them in four seconds. */
const taken = { bytes: 256 * 1024, ms: 30_000 };

const bytesOf = (part: Part): number => {
  const bytes = part instanceof Uint8Array ? part.length : part.bytesAtOnce;
  return bytes > smallBytes ? bytes : 0;
};
const sumOf = (parts: Part[]): number => parts.reduce((sum, part) => sum + bytesOf(part), 0);

const utf8 = new TextEncoder();
const comma = utf8.encode(",");

async function partsOf(value: unknown): Promise<Part[]> {
  const long = typeof value === "object" && value !== null ? longFields.get(value) : undefined;
  if (!long) return [await writeJsonInPieces(value)];
  const parts: Part[] = [];
  let separator = "{";
  for (const [name, field] of Object.entries(value as object)) {
    if (field === undefined) continue;
    parts.push(utf8.encode(`${separator}${JSON.stringify(name)}:`));
    separator = ",";
    parts.push(long[name] ?? (await writeJsonInPieces(field)));
  }
  parts.push(utf8.encode("}"));
  return parts;
}

/** Yields parts, of which each counts until it is taken. */
async function* sent(parts: Part[], held: HeldBytes): Pieces {
  for (let part = parts.shift(); part; part = parts.shift()) {
    if (part instanceof Uint8Array) yield part;
    else yield* part.read();
    held.add(-bytesOf(part));
  }
}

/**
 * Sends an answer in pieces, as its client takes them.
 *
 * @param bytes What it has in memory at first.
 * @throws AppError 503 when the answers of its client, or of all, would have too many. Runs ask before they begin.
 */
function sendParts(
  c: Context<AppEnv>,
  parts: Pieces,
  bytes: number,
  headers: Record<string, string> = {},
): Response {
  const held = c.get("answer");
  // The answer to HEAD is never read.
  if (c.req.method === "GET") held.take(bytes);
  else if (c.req.method !== "HEAD") held.add(bytes);
  const body = takenInTime(held, {
    async next() {
      const step = await parts.next();
      if (step.done === true) return undefined;
      return typeof step.value === "string" ? utf8.encode(step.value) : step.value;
    },
    cancel: async () => parts.return(undefined),
  });
  // The context adds the headers that the middleware has set; a new Response would not.
  return c.body(body, 200, { ...headers, "Content-Type": "application/json" });
}

/** A body of so many bytes that is whole in memory, as its client takes it. */
export async function holdBody(
  c: Context<AppEnv>,
  bytes: number,
  open: () => Promise<ReadableStream<Uint8Array>>,
): Promise<ReadableStream<Uint8Array>> {
  const held = c.get("answer");
  if (bytes <= smallBytes) return open();
  held.take(bytes);
  const reader = (await open()).getReader();
  return takenInTime(held, {
    next: async () => (await reader.read()).value,
    cancel: async (reason) => reader.cancel(reason),
  });
}

/** The same for an answer that was made elsewhere. It counts what of it is in memory. */
export function holdAnswer(c: Context<AppEnv>, answer: Response): Response {
  const reader = answer.body?.getReader();
  if (!reader) return answer;
  const held = c.get("answer");
  const body = takenInTime(held, {
    async next() {
      held.release();
      const part = (await reader.read()).value as Uint8Array<ArrayBuffer> | undefined;
      if (part) held.add(bytesOf(part));
      return part;
    },
    cancel: async (reason) => reader.cancel(reason),
  });
  return new Response(body, answer);
}

/** The body of an answer. It breaks off if its client takes too long for a piece while its bytes count. */
function takenInTime(
  held: HeldBytes,
  source: {
    next: () => Promise<Uint8Array | undefined>;
    cancel: (reason?: unknown) => Promise<unknown>;
  },
): ReadableStream<Uint8Array> {
  let rest: Uint8Array | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const cancel = async (reason?: unknown): Promise<void> => {
    clearTimeout(timer);
    rest = undefined;
    // What it makes meanwhile counts until it is cancelled.
    await source.cancel(reason).finally(() => held.release());
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(timer);
        try {
          rest ??= await source.next();
        } catch (error) {
          held.release();
          throw error;
        }
        if (rest === undefined) {
          held.release();
          return controller.close();
        }
        controller.enqueue(rest.subarray(0, taken.bytes));
        rest = rest.length > taken.bytes ? rest.subarray(taken.bytes) : undefined;
        if (held.bytes() === 0) return;
        timer = setTimeout(() => {
          const least = `${taken.bytes} bytes in ${taken.ms / 1000} s`;
          controller.error(new Error(`the client took less of its answer than ${least}`));
          void cancel().catch(() => {});
        }, taken.ms);
      },
      cancel,
    },
    { highWaterMark: 0 },
  );
}

const space = new TextEncoder().encode(" ");
const unbuffered = "X-Accel-Buffering";

/** Whether `patientJson` has begun an answer before its JSON was ready. */
export const isUnderWay = ({ headers }: Response): boolean => headers.has(unbuffered);

/**
 * Answers with JSON that may take long. After `silenceMs`, and once the status is sure to be 200, the answer begins with
 * white space, which is repeated until the JSON is ready. If the work fails after that, the answer breaks off.
 *
 * @param isSure Resolves when the status cannot change any more.
 * @param work Makes the answer. Its signal aborts when the client hangs up.
 */
export async function patientJson<R extends Response>(
  c: Context<AppEnv>,
  { silenceMs, waitUntil }: Pick<Deps, "silenceMs" | "waitUntil">,
  isSure: Promise<void>,
  work: (signal: AbortSignal) => Promise<R>,
): Promise<R> {
  const hungUp = new AbortController();
  const answer = work(AbortSignal.any([c.req.raw.signal, hungUp.signal]));
  const early = (await within(silenceMs, answer)) ?? (await Promise.race([answer, isSure]));
  if (early) return early;
  waitUntil(
    answer.catch(() => {}),
    "synchronous",
  );
  let rest: ReadableStreamDefaultReader<Uint8Array> | undefined;
  const parts = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(space),
    async pull(controller) {
      if (!rest) {
        const whole = await within(silenceMs, answer);
        if (!whole) return controller.enqueue(space);
        if (whole.status !== 200) throw new Error(`the answer became ${whole.status}`);
        rest = whole.body!.getReader();
      }
      const part = await rest.read();
      if (part.done) controller.close();
      else controller.enqueue(part.value);
    },
    cancel() {
      hungUp.abort();
      waitUntil(answer.then(async ({ body }) => (rest ?? body)?.cancel()).catch(() => {}));
    },
  });
  // What compresses holds white space back.
  const headers = {
    "Content-Type": "application/json",
    "Cache-Control": "private, no-store, no-transform",
    [unbuffered]: "no",
  };
  return c.body(parts, 200, headers) as Response as R;
}

/** What the promise resolves to; undefined if that takes longer. */
async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
