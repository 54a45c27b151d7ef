import { z } from "@hono/zod-openapi";
import { limits } from "../../shared/wire/limits.ts";
import { jobId } from "./examples/jobs.ts";

export const idParam = (description: string, example: string) =>
  z.object({
    id: z
      .string()
      .openapi({ param: { name: "id", in: "path" }, format: "uuid", description, example }),
  });

export const jobIdParam = idParam("The `job_id` from the answer to the submission.", jobId);

const plain = /^-?(0|[1-9][0-9]{0,15})$/;

/** A number in a path; undefined for every spelling other than the service's own. */
export function plainNumber(text: string): number | undefined {
  return plain.test(text) && Number(text) > 0 ? Number(text) : undefined;
}

/** A whole number in its one spelling: 1.0, 01, 1e0, +1 and an empty text are refused. */
const plainText = z.string().regex(plain, "must be a whole number, in digits");

/** A whole number in a query. Its schema is explicit, because the generator thinks that a coerced number accepts null. */
export function integerQuery(
  range: { minimum: number; maximum: number; default: number },
  description: string,
) {
  return plainText
    .pipe(z.coerce.number<string>().int().min(range.minimum).max(range.maximum))
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

export const booleanQuery = (description: string) =>
  z.stringbool().default(false).openapi({ type: "boolean", default: false, description });

/** The number of the last item of the previous page. */
export const beforeQuery = (description: string) =>
  plainText
    .pipe(z.coerce.number<string>().int().min(1))
    .optional()
    .openapi({ type: "integer", minimum: 1, description });

export const viewQuery = z.enum(["full", "all"]).optional().openapi({
  description:
    "`full` adds the extended fields. `all` also adds every attempt and the rest of the submission.",
});

/** The header Prefer of a request that is answered once it is stored. */
export const prefer = z.string().optional().openapi({
  description:
    "`wait=N`: wait up to N seconds for the end, then answer 200 with the record, else 202 as ever (RFC 7240).",
  example: "wait=10",
});
