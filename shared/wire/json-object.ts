import { z } from "zod";
import { isJsonObject, type JsonObject } from "../json.ts";

export const JsonObjectSchema = z
  .custom<JsonObject>(isJsonObject, "must be a JSON object")
  .meta({ type: "object", additionalProperties: true });

/** A schema of an array or object that counts the entries before it checks any of them. */
export function atMost<T extends z.ZodType>(max: number, schema: T) {
  return z.preprocess((value, context) => {
    if (countEntries(value) > max) {
      context.addIssue({ code: "custom", message: `must have at most ${max} entries` });
    }
    return value;
  }, schema);
}

function countEntries(value: unknown): number {
  if (Array.isArray(value)) return value.length;
  return isJsonObject(value) ? Object.keys(value).length : 0;
}
