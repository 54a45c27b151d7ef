import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { limits } from "../../../shared/wire/limits.ts";
import type { Deps } from "../../deps.ts";
import type { AppEnv } from "../../http/context.ts";
import { errorStatus, type ErrorCode } from "../../errors.ts";
import { jobId } from "../examples/jobs.ts";
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

export const jobIdParam = z.object({
  id: z.string().openapi({
    param: { name: "id", in: "path" },
    format: "uuid",
    description: "The `job_id` from the answer to the submission.",
    example: jobId,
  }),
});

/** A whole number in a query. Its schema is explicit, because the generator thinks that a coerced number accepts null. */
export function integerQuery(
  range: { minimum: number; maximum: number; default: number },
  description: string,
) {
  return z.coerce
    .number()
    .int()
    .min(range.minimum)
    .max(range.maximum)
    .default(range.default)
    .openapi({ type: "integer", ...range, description });
}

export const pageQuery = {
  limit: integerQuery(
    { minimum: 1, maximum: limits.listLimitMax, default: limits.listLimitDefault },
    "Items in a page, at most.",
  ),
  offset: integerQuery(
    { minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 },
    "Items to leave out first.",
  ),
};

export const viewQuery = z.enum(["full", "all"]).optional().openapi({
  description:
    "`full` adds the extended fields. `all` also adds the number of attempts and the rest of the submission.",
});

/** Origin of a request, for its record. */
export function originOf({ clientAddress }: Deps, c: Context) {
  const { correlationId, traceparent, apiKeyHash } = c.var as AppEnv["Variables"];
  const keyId = apiKeyHash?.slice(0, 16);
  return { correlationId, traceparent, clientIp: clientAddress(c), keyId };
}
