import type { Context } from "hono";
import { concatBytes } from "../../shared/bytes.ts";
import { writeJsonInPieces } from "../../shared/json.ts";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "./context.ts";

/** Answers with a record, whose `output` may be large. */
export async function jsonRecord(
  c: Context,
  record: object,
  headers: Record<string, string> = {},
): Promise<Response> {
  const body = await writeJsonInPieces(record);
  return c.body(body, 200, { ...headers, "Content-Type": "application/json" });
}

/** Items rendered at a time. A page of a thousand items may have gigabytes, so it is never whole in memory. */
const itemsAtOnce = 8;
const comma = Uint8Array.of(0x2c);

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
  const utf8 = new TextEncoder();
  let next = 0;
  let isFirst = true;
  const text = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(utf8.encode('{"items":['));
    },
    async pull(controller) {
      const items = await render(rows.slice(next, next + itemsAtOnce));
      for (const item of items) {
        const bytes = await writeJsonInPieces(item);
        controller.enqueue(isFirst ? bytes : concatBytes([comma, bytes]));
        isFirst = false;
      }
      next += itemsAtOnce;
      if (next < rows.length) return;
      controller.enqueue(utf8.encode(`],${JSON.stringify(page).slice(1)}`));
      controller.close();
    },
  });
  // The context adds the headers that the middleware has set; a new Response would not.
  return c.body(text, 200, {
    "Content-Type": "application/json",
  });
}

const space = new TextEncoder().encode(" ");

/**
 * Answers with JSON that may take long. After `silenceMs`, and once the status is sure to be 200, the answer begins, and
 * white space comes until the JSON does. If the work fails after that, the answer breaks off.
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
  const parts = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(space),
    async pull(controller) {
      const whole = await within(silenceMs, answer);
      if (!whole) return controller.enqueue(space);
      if (whole.status !== 200) throw new Error(`the answer became ${whole.status}`);
      controller.enqueue(new Uint8Array(await whole.arrayBuffer()));
      controller.close();
    },
    cancel: () => hungUp.abort(),
  });
  const headers = { "Content-Type": "application/json", "X-Accel-Buffering": "no" };
  return c.body(parts, 200, headers) as Response as R;
}

/** Undefined if it takes longer. */
async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
