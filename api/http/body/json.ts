import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import type { z } from "zod";
import { isJsonObject, JsonError, parseJson, plainNumber } from "../../../shared/json.ts";
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
