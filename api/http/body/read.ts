import { AppError } from "../../errors.ts";

/**
 * Reads a request's whole body. The caller must have limited its length.
 *
 * @throws AppError 400 when the client breaks it off.
 */
export async function readBody(request: Request): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await request.arrayBuffer());
  } catch {
    throw brokenOff();
  }
}

/**
 * Reads a request's body in parts.
 *
 * @throws AppError 400 when the client breaks it off; not 500, since that is no error of the service.
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

/** Reads and drops the rest of a body: to its end, or at most `bytes`, or for at most `ms`. */
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
    // The client is gone and receives no answer.
  } finally {
    clearTimeout(timer);
  }
}

function brokenOff(): AppError {
  return new AppError("invalid_request", "The body broke off before its end.");
}
