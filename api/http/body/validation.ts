import type { Hook } from "@hono/zod-openapi";
import { fieldErrors } from "../../../shared/wire/field-errors.ts";
import { notValid } from "../../errors.ts";
import type { AppEnv } from "../context.ts";

/** Answers 400 with all faults to a request that does not match its schema. */
export const onInvalid: Hook<unknown, AppEnv, string, unknown> = (result) => {
  if (!result.success) throw notValid("The request", fieldErrors(result.error));
};
