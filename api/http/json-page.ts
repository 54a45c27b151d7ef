import type { Context } from "hono";
import { writeJsonInPieces } from "../../shared/json.ts";
import type { Deps } from "../deps.ts";
import { longTexts } from "../jobs/read-records.ts";
import type { AppEnv } from "./context.ts";

/** Answers with a record, whose `output` may be large. Its long texts are read while it is sent. */
export async function jsonRecord(
  c: Context,
  record: object,
  headers: Record<string, string> = {},
): Promise<Response> {
  if (longTexts.has(record)) return sendParts(c, jsonParts(record), headers);
  const body = await writeJsonInPieces(record);
  return c.body(body, 200, { ...headers, "Content-Type": "application/json" });
}

/** Items rendered at a time. A page of a thousand items may have gigabytes, so it is never whole in memory. */
const itemsAtOnce = 8;

/**
 * Answers with a page of a list, and reads its items while it sends them.
 *
 * @param found One row more than the limit, if there are more.
 */
export function jsonPage<Row>(
  c: Context,
  found: Row[],
  { limit, offset }: { limit: number; offset: number },
  render: (some: Row[]) => Promise<unknown[]>,
): Response {
  const rows = found.slice(0, limit);
  const page = { limit, offset, has_more: found.length > limit, count: rows.length };
  async function* parts(): Parts {
    yield '{"items":[';
    for (let next = 0; next < rows.length; next += itemsAtOnce) {
      const items = await render(rows.slice(next, next + itemsAtOnce));
      for (const [n, item] of items.entries()) {
        if (next + n > 0) yield ",";
        yield* jsonParts(item);
      }
    }
    yield `],${JSON.stringify(page).slice(1)}`;
  }
  return sendParts(c, parts());
}

type Parts = AsyncGenerator<string | Uint8Array<ArrayBuffer>>;

async function* jsonParts(value: unknown): Parts {
  const texts = typeof value === "object" && value !== null ? longTexts.get(value) : undefined;
  if (!texts) {
    yield await writeJsonInPieces(value);
    return;
  }
  let separator = "{";
  for (const [name, field] of Object.entries(value as object)) {
    if (field === undefined) continue;
    yield `${separator}${JSON.stringify(name)}:`;
    separator = ",";
    const text = texts[name];
    if (!text) yield await writeJsonInPieces(field);
    else {
      yield '"';
      for await (const part of text()) yield JSON.stringify(part).slice(1, -1);
      yield '"';
    }
  }
  yield "}";
}

function sendParts(c: Context, parts: Parts, headers: Record<string, string> = {}): Response {
  const utf8 = new TextEncoder();
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const step = await parts.next();
        if (step.done === true) return controller.close();
        controller.enqueue(typeof step.value === "string" ? utf8.encode(step.value) : step.value);
      },
      async cancel() {
        await parts.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
  // The context adds the headers that the middleware has set; a new Response would not.
  return c.body(body, 200, { ...headers, "Content-Type": "application/json" });
}

const space = new TextEncoder().encode(" ");

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
    cancel: () => hungUp.abort(),
  });
  // What compresses holds white space back.
  const headers = {
    "Content-Type": "application/json",
    "Cache-Control": "private, no-store, no-transform",
    "X-Accel-Buffering": "no",
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
