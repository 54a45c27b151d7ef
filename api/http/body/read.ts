import { AppError } from "../../errors.ts";

/** The configuration key that limits a body. */
export type LimitKey = "max_request_bytes" | "max_batch_bytes";

/**
 * How much of a body that is too large is still read before it is refused. Many clients read no answer
 * until they have sent everything, and report a broken pipe if the connection ends earlier.
 */
const dropped = { bytes: 64 * 1024 * 1024, ms: 30_000 };

/** The bytes of a request body, at most `max_request_bytes` unless `limit` says otherwise. @throws AppError 413 when they pass the limit. */
export async function readBytes(
  request: Request,
  maxBytes: number,
  limit: LimitKey | null = "max_request_bytes",
): Promise<Uint8Array<ArrayBuffer>> {
  const announced = request.headers.get("Content-Length");
  // HTTP enforces an announced length. A body without one is counted while it arrives.
  if (announced !== null && Number(announced) <= maxBytes) return readAnnounced(request);
  const body = received(request.body);
  if (announced === null) {
    let bytes = new Uint8Array(firstBytes);
    for (let size = 0; ;) {
      const part = await body.next();
      if (part.done) return bytes.subarray(0, size);
      const end = size + part.value.length;
      if (end > maxBytes) break;
      if (end > bytes.length) bytes = grown(bytes, Math.min(Math.max(end, 2 * size), maxBytes));
      bytes.set(part.value, size);
      size = end;
    }
  }
  if (Number(announced) <= maxBytes + dropped.bytes) await dropRest(body, dropped);
  throw new AppError(
    "too_large",
    `The body is larger than ${maxBytes} bytes${limit === null ? "" : ` (${limit})`}.`,
    {},
    { Connection: "close" },
  );
}

/** Room for the first bytes of a body without a length. */
const firstBytes = 16 * 1024;

function grown(bytes: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  const longer = new Uint8Array(length);
  longer.set(bytes);
  return longer;
}

/** @throws AppError 400 when the client breaks it off. */
async function readAnnounced(request: Request): Promise<Uint8Array<ArrayBuffer>> {
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
