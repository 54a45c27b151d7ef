import { AppError } from "../errors.ts";

/**
 * A request's body, where its length is known to be bounded.
 *
 * @throws AppError 400 when the client breaks it off.
 */
export async function readBody(request: Request): Promise<Uint8Array> {
  try {
    return new Uint8Array(await request.arrayBuffer());
  } catch {
    throw brokenOff();
  }
}

/**
 * The parts of a request's body.
 *
 * @throws AppError 400 when the client breaks it off, which is no fault of the service.
 */
export async function* received(
  body: ReadableStream<Uint8Array> | null,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    if (body) yield* body;
  } catch {
    throw brokenOff();
  }
}

/** Reads and drops what is left of a body: until its end, or so many bytes, or for so long. */
export async function dropRest(
  parts: AsyncIterator<Uint8Array, unknown, undefined>,
  most: { bytes: number; ms: number },
): Promise<void> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => resolve(undefined), most.ms);
  try {
    for (let dropped = 0; dropped < most.bytes;) {
      const part = await Promise.race([parts.next(), late]);
      if (part === undefined || part.done) return;
      dropped += part.value.length;
    }
  } catch {
    // The client is gone, and hears of nothing any more.
  } finally {
    clearTimeout(timer);
  }
}

function brokenOff(): AppError {
  return new AppError("invalid_request", "The body broke off before its end.");
}
