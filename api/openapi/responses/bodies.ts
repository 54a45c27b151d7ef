import type { z } from "@hono/zod-openapi";
import { errorStatus, type ErrorCode } from "../../errors.ts";
import { problemRef } from "./problems.ts";
import { headers, type ResponseHeader } from "./headers.ts";

/** One example of a body, or several with names. */
export interface Shown<T> {
  example?: T;
  examples?: Record<string, { summary: string; value: T }>;
}

/** The OpenAPI description of a JSON answer. */
export function json<T extends z.ZodType>(
  schema: T,
  description: string,
  shown: Shown<z.output<T>> = {},
  ...headerNames: ResponseHeader[]
) {
  return {
    description,
    headers: headers(...headerNames),
    content: { "application/json": { schema, ...shown } },
  } as const;
}

/** The OpenAPI description of a JSON request body. */
export function body<T extends z.ZodType>(
  schema: T,
  shown: Shown<z.input<T>> = {},
  required = true,
) {
  return { body: { required, content: { "application/json": { schema, ...shown } } } } as const;
}

/**
 * The OpenAPI descriptions of an endpoint's own refusals. `describeEverywhere` adds those of every
 * endpoint.
 */
export function problems(...codes: ErrorCode[]): Record<number, { $ref: string }> {
  return Object.fromEntries(codes.map((code) => [errorStatus[code], problemRef(code)]));
}
