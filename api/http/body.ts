import type { Hook } from "@hono/zod-openapi";
import type { Context, MiddlewareHandler } from "hono";
import { createMiddleware } from "hono/factory";
import type { z } from "zod";
import { isJsonObject, JsonError, parseJsonInPieces, plainNumber } from "../../shared/json.ts";
import { letOthersRun, turnTaker } from "../../shared/turns.ts";
import { fieldErrors } from "../../shared/wire/errors.ts";
import { artifactHeaders } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Announced, Hashed } from "../deps.ts";
import { AppError, notValid, unavailable } from "../errors.ts";
import type { AppEnv, HeldBytes } from "./context.ts";

/**
 * Reads a JSON request body for the validators that follow. It is limited while it streams in and must be
 * valid UTF-8. Numbers inside nested values are kept as they were written.
 *
 * @throws AppError 401 if the caller's key has become void while the body arrived, which may take long.
 */
export function jsonBody(maxBytes: number, limit?: LimitKey) {
  return bodyOf(async (c) => withPlainNumbers(await readJson(c, maxBytes, limit)));
}

/** The same with the numbers of its fields kept as they were written, too. */
export function exactBody(maxBytes: number) {
  return bodyOf(async (c) => readJson(c, maxBytes, null));
}

function bodyOf(read: (c: Context<AppEnv>) => Promise<unknown>) {
  return createMiddleware<AppEnv>(async (c, next) => {
    const body = await read(c);
    await c.get("caller")?.recheck();
    claimJson(c);
    c.req.json = <T>() => Promise.resolve(body as T);
    await next();
  });
}

/** Like `jsonBody`, for a request whose body is optional: without one it is {}, whatever its type is said to be. */
export function optionalJsonBody(maxBytes: number) {
  return bodyOf(async (c) => {
    const bytes = await readBytes(c, maxBytes);
    if (bytes.length === 0) return {};
    requireJson(c);
    return withPlainNumbers(await parseBytes(bytes));
  });
}

/** The validator that follows ignores a body without a type, and one of `application/json ; x=y`, which is legal. */
function claimJson(c: Context): void {
  const header = c.req.header.bind(c.req) as (name?: string) => string | undefined;
  c.req.header = ((name?: string) =>
    name?.toLowerCase() === "content-type" ? "application/json" : header(name)) as never;
}

/** Reads and validates a JSON body, for routes outside the OpenAPI document. */
export async function parseBody<T extends z.ZodType>(
  c: Context<AppEnv>,
  schema: T,
  maxBytes: number,
): Promise<z.infer<T>> {
  const parsed = schema.safeParse(withPlainNumbers(await readJson(c, maxBytes)));
  if (parsed.success) return parsed.data;
  throw invalid("The request body is not valid.", parsed.error);
}

export function invalid(detail: string, error: z.ZodError | z.core.$ZodError): AppError {
  return new AppError("invalid_request", detail, { errors: fieldErrors(error) });
}

/** The text of a request body. @throws AppError 413 when it passes the limit, 400 when it is not UTF-8. */
export async function readText(c: Context<AppEnv>, maxBytes: number): Promise<string> {
  return decode(await readBytes(c, maxBytes));
}

/** A file of a form. */
export interface FormFile {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** The most parts of a form, and bytes in the header of a part. */
const formMost = { parts: 1000, headerBytes: 16 * 1024 };

/**
 * The files of a body of multipart/form-data. The platforms' own readers have no limits, and take no pauses.
 *
 * @throws AppError 413 when the body passes the limit; 400 when it is no form, or has too many parts.
 */
export async function readForm(
  c: Context<AppEnv>,
  maxBytes: number,
  limit?: LimitKey,
): Promise<FormFile[]> {
  const type = c.req.header("Content-Type") ?? "";
  const bytes = await readBytes(c, maxBytes, limit);
  const [, quoted, boundary = quoted] =
    /^multipart\/form-data\s*;.*?\bboundary=(?:"([^"]{1,70})"|([^\s";]{1,70}))\s*(?:;|$)/i.exec(
      type,
    ) ?? [];
  if (boundary === undefined) throw noForm();
  const marks = await findMarks(bytes, new TextEncoder().encode(`\r\n--${boundary}`));
  // The first mark ends what comes before the parts; the last mark ends the form.
  if (marks.length < 2) throw noForm();
  return marks.slice(1).flatMap(({ from }, n) => fileOf(bytes.subarray(marks[n]!.to, from)) ?? []);
}

/** The places of a mark in a form. The first mark may lack the line break before it. */
async function findMarks(bytes: Uint8Array, mark: Uint8Array) {
  const found: { from: number; to: number }[] = [];
  const last = mark.length - 1;
  for (let at = 0, tries = 1; ; at++, tries++) {
    at = bytes.indexOf(mark[last]!, at);
    if (at === -1) return found;
    if (tries % 65_536 === 0) await letOthersRun();
    const from = at - last;
    const isMark = mark.every(
      (byte, n) => from + n === -2 || from + n === -1 || bytes[from + n] === byte,
    );
    if (!isMark) continue;
    if (found.push({ from: Math.max(0, from), to: at + 1 }) <= formMost.parts + 1) continue;
    const message = `must have at most ${formMost.parts} parts`;
    throw new AppError("invalid_request", `The form ${message}.`, {
      errors: [{ path: "(body)", message }],
    });
  }
}

/** The file of a part; undefined if its header names none. */
function fileOf(part: Uint8Array<ArrayBuffer>): FormFile | undefined {
  // One character for each byte, so that positions in the text and in the bytes are the same.
  const head = new TextDecoder("latin1").decode(part.subarray(0, formMost.headerBytes));
  const end = head.indexOf("\r\n\r\n");
  if (end === -1) throw noForm();
  const header = new TextDecoder().decode(part.subarray(0, end));
  const disposition = /^content-disposition:\s*form-data\b.*$/im.exec(header)?.[0];
  if (disposition === undefined) throw noForm();
  const [, plain, encoded] =
    /;\s*filename="([^"]*)"/i.exec(disposition) ??
    /;\s*filename\*=utf-8''()(\S*)/i.exec(disposition) ??
    [];
  if (plain === undefined) return undefined;
  const name =
    encoded === undefined
      ? plain.replaceAll(/%(?:22|0D|0A)/gi, decodeURIComponent)
      : decodeName(encoded);
  return { name, bytes: part.slice(end + 4) };
}

function decodeName(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw noForm();
  }
}

function noForm(): AppError {
  return new AppError("invalid_request", "The body is not multipart/form-data.");
}

async function readJson(
  c: Context<AppEnv>,
  maxBytes: number,
  limit?: LimitKey | null,
): Promise<unknown> {
  requireJson(c);
  return parseBytes(await readBytes(c, maxBytes, limit), limit);
}

function requireJson(c: Context): void {
  const type = c.req.header("Content-Type") ?? "";
  if (!/^application\/([a-z.-]+\+)?json\s*(;|$)/i.test(type)) {
    throw new AppError("invalid_request", "Send the body as Content-Type: application/json.");
  }
}

/** @throws AppError 400 when it is no JSON, or has so many values that reading them would delay other requests. */
async function parseBytes(bytes: Uint8Array, limit?: LimitKey | null): Promise<unknown> {
  const text = decode(bytes);
  const { jsonDepthMax: depth, requestMaxValues: values, inputMaxValues } = limits;
  // In a batch, `input_data` is in an object of the array `jobs`.
  const inputDepth = limit === "max_batch_bytes" ? 3 : 1;
  const roomy = { key: "input_data", depth: inputDepth, values: inputMaxValues };
  try {
    return await parseJsonInPieces(text, { depth, values, roomy });
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw refusalOf(error);
  }
}

/** The refusal of a body whose JSON cannot be read. */
function refusalOf({ isMalformed, message, path }: JsonError): AppError {
  if (isMalformed) {
    return new AppError("invalid_request", `The body is not valid JSON: ${message}.`);
  }
  const field = path || "(body)";
  const advice = `${message}: send large data as files`;
  return new AppError("invalid_request", `${field}: ${advice}.`, {
    errors: [{ path: field, message: advice }],
  });
}

function withPlainNumbers(body: unknown): unknown {
  if (!isJsonObject(body)) return body;
  return Object.fromEntries(Object.entries(body).map(([k, v]) => [k, plainNumber(v)]));
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new AppError("invalid_request", "The body is not valid UTF-8.");
  }
}

/** The configuration key that limits a body. */
type LimitKey = "max_request_bytes" | "max_batch_bytes";

/**
 * How much of a body that is too large is still read before it is refused. Many clients read no answer
 * until they have sent everything, and report a broken pipe if the connection ends earlier.
 */
const dropped = { bytes: 64 * 1024 * 1024, ms: 30_000 };

/** Extra room for bodies of at most `smallBytes`, so that large ones do not keep them out. */
const smallBytes = 64 * 1024;
const smallRoomBytes = 16 * 1024 * 1024;

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
    const client = () => clientOf(c);
    const body = bodies(client);
    c.set("body", body);
    c.set("answer", answers(client));
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

/** @param smallRoom Bytes above both bounds, for clients that hold little. */
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
      isBounded: all < Infinity,
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
const bytesAtOnce = 64 * 1024;

/**
 * Reads a request's body in parts.
 *
 * @throws AppError 400 when the client breaks it off; not 500, since that is no error of the service.
 */
export async function* received(
  body: ReadableStream<Uint8Array> | null,
): AsyncGenerator<Uint8Array, void, void> {
  const takeTurn = turnTaker();
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

/** Refuses an upload as `curl -F` and browsers' forms send it: the stored file would be the whole form. */
export const refuseForm = createMiddleware(async (c, next) => {
  if (/^multipart\/form-data\b/i.test(c.req.header("Content-Type") ?? "")) {
    throw new AppError(
      "invalid_request",
      "Send the file itself as the body and its name as ?name=, not a form: curl --data-binary @FILE '…/files?name=FILE'.",
    );
  }
  await next();
});

const isSha256 = (text: string) => /^[0-9a-f]{64}$/.test(text);

/**
 * Reads size and, if it is announced, SHA-256 of a file that a client uploads.
 *
 * @throws AppError 411 without a size; 400 when the hash is malformed.
 */
export function readFileHeaders(c: Context): Announced {
  const size = c.req.header(artifactHeaders.size);
  const sha256 = c.req.header(artifactHeaders.sha256)?.toLowerCase();
  if (size === undefined) {
    const detail = "Send the file's size as Content-Length.";
    throw new AppError("length_required", detail, {}, { Connection: "close" });
  }
  if (sha256 !== undefined && !isSha256(sha256)) {
    throw new AppError("invalid_request", "X-Airlock-SHA256 must be 64 hex digits.");
  }
  return { sizeBytes: Number(size), sha256 };
}

/** Reads size and SHA-256 from the headers of an upload. @throws AppError when one is missing or malformed. */
export function readUploadHeaders(c: Context): Hashed {
  const sizeBytes = Number(c.req.header(artifactHeaders.size));
  const sha256 = c.req.header(artifactHeaders.sha256) ?? "";
  if (Number.isSafeInteger(sizeBytes) && isSha256(sha256)) {
    return { sizeBytes, sha256 };
  }
  throw new AppError(
    "invalid_request",
    `Send ${artifactHeaders.size} and ${artifactHeaders.sha256} (64 hex digits).`,
  );
}

/** Answers 400 with all faults to a request that does not match its schema. */
export const onInvalid: Hook<unknown, AppEnv, string, unknown> = (result) => {
  if (!result.success) throw notValid("The request", fieldErrors(result.error));
};
