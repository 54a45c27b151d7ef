import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import type { z } from "zod";
import { isJsonObject, JsonError, parseJsonInPieces, plainNumber } from "../../../shared/json.ts";
import { letOthersRun } from "../../../shared/let-others-run.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { fieldErrors } from "../../../shared/wire/field-errors.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";
import { type LimitKey, readBytes } from "./read.ts";

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
    if (bytes.length > 0) {
      requireJson(c);
      return withPlainNumbers(await parseBytes(bytes));
    }
    return {};
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
export function refusalOf({ isMalformed, message, path }: JsonError): AppError {
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
