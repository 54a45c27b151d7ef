import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Problem } from "../../shared/errors.ts";
import { limits } from "../../shared/limits.ts";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "../http/context.ts";
import { errorStatus, errorTitles, type ErrorCode } from "../errors.ts";

/** The OpenAPI description of a JSON answer. */
export function json<T extends z.ZodType>(schema: T, description: string) {
  return { description, content: { "application/json": { schema } } } as const;
}

/** A required JSON request body. */
export function body<T extends z.ZodType>(schema: T) {
  return { body: { required: true, content: { "application/json": { schema } } } } as const;
}

/** The OpenAPI descriptions of the refusals that an endpoint may answer with. */
export function problems(...codes: ErrorCode[]) {
  const always: ErrorCode[] = ["unauthorized", "internal"];
  return Object.fromEntries(
    [...codes, ...always].map((code) => [
      errorStatus[code],
      {
        description: errorTitles[code],
        content: { "application/problem+json": { schema: Problem } },
      },
    ]),
  );
}

export const jobIdParam = z.object({
  id: z.string().openapi({ param: { name: "id", in: "path" }, format: "uuid" }),
});

export const pageQuery = {
  limit: z.coerce.number().int().min(1).max(limits.listLimitMax).default(limits.listLimitDefault),
  offset: z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).default(0),
};

export const viewQuery = z
  .enum(["full"])
  .optional()
  .openapi({ description: "`full` adds the extended fields." });

/** Who sent a request, for its record. */
export function originOf({ clientAddress }: Deps, c: Context) {
  const { correlationId } = c.var as AppEnv["Variables"];
  return { correlationId, clientIp: clientAddress(c) };
}
