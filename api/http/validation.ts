import type { Hook } from "@hono/zod-openapi";
import type { z } from "zod";
import type { FieldError } from "../../shared/errors.ts";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./context.ts";

type ZodIssue = z.core.$ZodIssue;

/** Every fault that a schema found, each with the path of its field. */
export function fieldErrors(error: z.core.$ZodError): FieldError[] {
  return error.issues.flatMap((issue) =>
    issue.code === "unrecognized_keys"
      ? issue.keys.map((key) => ({
          path: [...issue.path, key].join("."),
          message: "is not a field of this request",
        }))
      : [{ path: issue.path.join(".") || "(body)", message: describe(issue) }],
  );
}

function describe(issue: ZodIssue): string {
  if (issue.code === "invalid_type" && issue.input === undefined) return "is required";
  return issue.message;
}

/** Refuses a request that its schema does not accept: 400, with all faults at once. */
export const onInvalid: Hook<unknown, AppEnv, string, unknown> = (result) => {
  if (result.success) return;
  const errors = fieldErrors(result.error);
  const detail = errors.map(({ path, message }) => `${path}: ${message}`).join("; ");
  throw new AppError("invalid_request", `The request is not valid: ${detail}`, { errors });
};
