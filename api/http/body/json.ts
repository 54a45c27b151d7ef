import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import type { z } from "zod";
import { concatBytes } from "../../../shared/bytes.ts";
import { isJsonObject, JsonError, parseJson, plainNumber } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { fieldErrors } from "../../../shared/wire/field-errors.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";
import { dropRest, readBody, received } from "./read.ts";

/** The configuration key that limits a body. */
type LimitKey = "max_request_bytes" | "max_batch_bytes";

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

function bodyOf(read: (c: Context) => Promise<unknown>) {
  return createMiddleware<AppEnv>(async (c, next) => {
    const body = await read(c);
    await c.get("caller")?.recheck();
    c.req.json = <T>() => Promise.resolve(body as T);
    await next();
  });
}

/** Like `jsonBody`, for a request whose body is optional: without one it is {}, whatever its type is said to be. */
export function optionalJsonBody(maxBytes: number) {
  return bodyOf(async (c) => {
    const bytes = await readBytes(c.req.raw, maxBytes);
    if (bytes.length > 0) {
      requireJson(c);
      return withPlainNumbers(parseBytes(bytes));
    }
    // The validator that follows gives no defaults to a request without a type.
    const header = c.req.header.bind(c.req) as (name?: string) => string | undefined;
    c.req.header = ((name?: string) =>
      name?.toLowerCase() === "content-type" ? "application/json" : header(name)) as never;
    return {};
  });
}

/** Reads and validates a JSON body, for routes outside the OpenAPI document. */
export async function parseBody<T extends z.ZodType>(
  c: Context,
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
export async function readText(request: Request, maxBytes: number): Promise<string> {
  return decode(await readBytes(request, maxBytes));
}

/** The parts of a body of multipart/form-data. @throws AppError 413 when it passes the limit, 400 when it is none. */
export async function readForm(
  request: Request,
  maxBytes: number,
  limit?: LimitKey,
): Promise<FormData> {
  const type = request.headers.get("Content-Type") ?? "";
  const bytes = await readBytes(request, maxBytes, limit);
  try {
    return await new Response(bytes, { headers: { "Content-Type": type } }).formData();
  } catch {
    throw new AppError("invalid_request", "The body is not multipart/form-data.");
  }
}

async function readJson(c: Context, maxBytes: number, limit?: LimitKey | null): Promise<unknown> {
  requireJson(c);
  return parseBytes(await readBytes(c.req.raw, maxBytes, limit));
}

function requireJson(c: Context): void {
  const type = c.req.header("Content-Type") ?? "";
  if (!/^application\/([a-z.-]+\+)?json\s*(;|$)/i.test(type)) {
    throw new AppError("invalid_request", "Send the body as Content-Type: application/json.");
  }
}

function parseBytes(bytes: Uint8Array): unknown {
  const text = decode(bytes);
  try {
    return parseJson(text, limits.jsonDepthMax);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new AppError("invalid_request", `The body is not valid JSON: ${error.message}`);
  }
}

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
  if (announced !== null && Number(announced) <= maxBytes) return readBody(request);
  const body = received(request.body);
  if (announced === null) {
    const parts: Uint8Array[] = [];
    for (let size = 0; size <= maxBytes;) {
      const part = await body.next();
      if (part.done) return concatBytes(parts);
      size += part.value.length;
      parts.push(part.value);
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
