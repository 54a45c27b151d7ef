import { PassThrough, pipeline, type Readable } from "node:stream";
import type { Http } from "./http.ts";

/** After this many connections in a row that brought no byte, the download fails. */
const MAX_EMPTY = 3;

type Answer = Awaited<ReturnType<Http["open"]>>;
type Ask = (headers: Record<string, string>, signal: AbortSignal) => Promise<Answer>;

/**
 * Opens a download that resumes at the same byte if the connection breaks.
 *
 * @param ask Requests the whole body.
 * @param askAgain Requests the rest; retries while the API is unreachable.
 * @throws what `ask` throws. If it cannot resume, the body fails with the error that broke the
 *   connection, or with what `askAgain` throws.
 */
export async function openResumed(ask: Ask, askAgain: Ask, signal: AbortSignal): Promise<Readable> {
  const closed = new AbortController();
  const until = AbortSignal.any([signal, closed.signal]);
  const { body, headers } = await ask({}, until);

  async function rest(offset: number): Promise<Readable | null> {
    const { etag } = headers;
    if (typeof etag !== "string") return null;
    const part = await askAgain({ range: `bytes=${offset}-`, "if-range": etag }, until);
    if (part.statusCode === 206) return part.body;
    part.body.destroy();
    return null;
  }

  const whole = new PassThrough();
  whole.once("close", () => closed.abort()).on("error", () => {});
  pipeline(resume(body, rest, until), whole, () => {});
  return whole;
}

async function* resume(
  first: Readable,
  rest: (offset: number) => Promise<Readable | null>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  let offset = 0;
  let empty = 0;
  for (let body = first; ;) {
    try {
      for await (const piece of body as AsyncIterable<Buffer>) {
        offset += piece.length;
        empty = 0;
        yield piece;
      }
      return;
    } catch (error) {
      signal.throwIfAborted();
      empty += 1;
      const next = empty < MAX_EMPTY ? await rest(offset) : null;
      if (next === null) throw error;
      body = next;
    }
  }
}
