import type { Context, MiddlewareHandler } from "hono";
import { takeTurn } from "../../../shared/let-others-run.ts";
import { AppError, unavailable } from "../../errors.ts";
import type { AppEnv, HeldBytes } from "../context.ts";

/** The configuration key that limits a body. */
export type LimitKey = "max_request_bytes" | "max_batch_bytes";

/**
 * How much of a body that is too large is still read before it is refused. Many clients read no answer
 * until they have sent everything, and report a broken pipe if the connection ends earlier.
 */
const dropped = { bytes: 64 * 1024 * 1024, ms: 30_000 };

const MiB = 1024 * 1024;
/** Extra room for bodies of at most `smallBytes`, so that large ones do not keep them out. */
const smallBytes = 64 * 1024;
const smallRoomBytes = 16 * MiB;

/** The most bytes in memory: of each client, and of all. */
type Most = { each: number; all: number };
export const unbounded: Most = { each: Infinity, all: Infinity };

/**
 * Bounds the bytes in memory, of each client and of all: those of bodies, and those of answers that clients have not
 * taken. A body counts from before it is read until its request is answered or `forgetBody` is called; an answer
 * counts until its last byte is taken: see `sendParts`. A compressed body is refused with 415.
 */
export function holdBytes(
  clientOf: (c: Context<AppEnv>) => string,
  most: { bodies: Most; answers: Most },
): MiddlewareHandler<AppEnv> {
  const bodies = countHeld(
    most.bodies,
    smallRoomBytes,
    (whose, bytes) =>
      `The bodies of ${whose} that are under way would have more than ${bytes} bytes together: send fewer or smaller ones at a time.`,
  );
  const answers = countHeld(
    most.answers,
    0,
    (whose, bytes) =>
      `The answers to ${whose} that are under way would hold more than ${bytes} bytes together: read them to their end, or ask for fewer at a time.`,
  );
  return async (c, next) => {
    const body = bodies(() => clientOf(c));
    c.set("body", body);
    c.set(
      "answer",
      answers(() => clientOf(c)),
    );
    const encoding = c.req.header("Content-Encoding") ?? "identity";
    if (encoding.toLowerCase() !== "identity") {
      const detail = `Content-Encoding: ${encoding} is not read: send the body as it is, without this header.`;
      throw new AppError("unsupported_encoding", detail);
    }
    try {
      await next();
    } finally {
      body.release();
    }
  };
}

/** @param smallRoom Bytes above the bounds that those have who hold little. */
function countHeld(
  { each, all }: Most,
  smallRoom: number,
  explain: (whose: string, most: number) => string,
) {
  const ofClients = new Map<string, number>();
  let ofAll = 0;
  return (clientOf: () => string): HeldBytes => {
    let client: string | undefined;
    let held = 0;
    const add = (bytes: number): void => {
      client ??= clientOf();
      held += bytes;
      ofAll += bytes;
      const own = (ofClients.get(client) ?? 0) + bytes;
      if (own > 0) ofClients.set(client, own);
      else ofClients.delete(client);
    };
    return {
      take(bytes) {
        client ??= clientOf();
        const more = held + bytes <= smallBytes ? smallRoom : 0;
        const own = (ofClients.get(client) ?? 0) + bytes;
        if (own > each + more) throw unavailable(explain("your requests", each), 1);
        if (ofAll + bytes > all + more) throw unavailable(explain("all requests", all), 1);
        add(bytes);
      },
      add,
      bytes: () => held,
      release() {
        if (held > 0) add(-held);
      },
    };
  };
}

/** Empties the body of a request that goes on to wait: the functions that wait with it would keep the body in memory. */
export async function forgetBody(c: Context<AppEnv>): Promise<void> {
  for (const copy of [await c.req.json<object>(), c.req.valid("json" as never) as object]) {
    for (const key of Object.keys(copy)) Reflect.deleteProperty(copy, key);
  }
  c.get("body").release();
}

/**
 * The bytes of a request body, at most `max_request_bytes` unless `limit` says otherwise.
 *
 * @throws AppError 413 when they pass the limit, 503 when too many bodies are in memory.
 */
export async function readBytes(
  { req: { raw: request }, var: { body: held } }: Context<AppEnv>,
  maxBytes: number,
  limit: LimitKey | null = "max_request_bytes",
): Promise<Uint8Array<ArrayBuffer>> {
  const announced = request.headers.get("Content-Length");
  const tooLarge = () =>
    new AppError(
      "too_large",
      `The body is larger than ${maxBytes} bytes${limit === null ? "" : ` (${limit})`}.`,
      {},
      { Connection: "close" },
    );
  // HTTP enforces an announced length. A body without one is counted while it arrives.
  let parts: ReturnType<typeof received> | undefined;
  try {
    if (announced === null && request.body === null) return new Uint8Array();
    if (Number(announced) > maxBytes) throw tooLarge();
    held.take(announced === null ? firstBytes : Number(announced));
    // On Node this is the fastest way, and it makes two copies.
    if (announced !== null && Number(announced) <= smallBytes) {
      return new Uint8Array(await request.arrayBuffer());
    }
    parts = received(request.body);
    let bytes = new Uint8Array(Number(announced ?? firstBytes));
    for (let size = 0; ;) {
      const part = await parts.next();
      if (part.done) return bytes.subarray(0, size);
      const end = size + part.value.length;
      if (end > maxBytes) throw tooLarge();
      if (end > bytes.length) {
        const longer = new Uint8Array(Math.min(Math.max(end, 2 * bytes.length), maxBytes));
        held.take(longer.length - bytes.length);
        longer.set(bytes);
        bytes = longer;
      }
      bytes.set(part.value, size);
      size = end;
    }
  } catch (error) {
    if (!(error instanceof AppError)) throw brokenOff();
    const isEndless = Number(announced) > maxBytes + dropped.bytes;
    if (!isEndless) await dropRest(parts ?? received(request.body), dropped);
    throw error;
  }
}

/** Memory for the first bytes of a body without an announced length. */
const firstBytes = 16 * 1024;

/** Bytes of a body that are read in a turn. Ten clients that send fast would otherwise fill each turn of the event loop. */
const bytesAtOnce = 128 * 1024;

/**
 * Reads a request's body in parts.
 *
 * @throws AppError 400 when the client breaks it off; not 500, since that is no error of the service.
 */
export async function* received(
  body: ReadableStream<Uint8Array> | null,
): AsyncGenerator<Uint8Array, void, void> {
  let untilPause = bytesAtOnce;
  try {
    for await (const part of body ?? []) {
      yield part;
      untilPause -= part.length;
      if (untilPause > 0) continue;
      untilPause = bytesAtOnce;
      await takeTurn();
    }
  } catch {
    throw brokenOff();
  }
}

/** Bodies that are being dropped. */
let dropping = 0;

/**
 * Reads and drops the rest of a body: to its end, or at most `bytes`, or for at most `ms`. However many bodies are dropped
 * at once, they take one part, of about 64 KiB, each millisecond: others get the time between.
 */
export async function dropRest(
  parts: AsyncIterator<Uint8Array, unknown, undefined>,
  most: { bytes: number; ms: number },
): Promise<void> {
  let isLate = false;
  let stop: (() => void) | undefined;
  const timer = setTimeout(() => {
    isLate = true;
    stop?.();
  }, most.ms);
  // A race with one promise for all parts would keep each of them until the end.
  const nextInTime = () =>
    new Promise<IteratorResult<Uint8Array, unknown> | undefined>((resolve, reject) => {
      if (isLate) return resolve(undefined);
      stop = () => resolve(undefined);
      parts.next().then(resolve, reject);
    });
  dropping++;
  try {
    for (let dropped = 0; dropped < most.bytes;) {
      const part = await nextInTime();
      if (part === undefined || part.done) return;
      dropped += part.value.length;
      await new Promise((resolve) => setTimeout(resolve, dropping));
    }
  } catch {
    // The client is gone and receives no answer.
  } finally {
    dropping--;
    clearTimeout(timer);
  }
}

function brokenOff(): AppError {
  return new AppError("invalid_request", "The body broke off before its end.");
}
