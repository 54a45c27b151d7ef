import { z } from "zod";
import { isJsonObject, type JsonObject } from "../json.ts";

/** ISO 8601, UTC, milliseconds. */
export const Timestamp = z.iso
  .datetime({ precision: 3 })
  .meta({ example: "2026-11-21T09:30:00.000Z" });

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

/** A page of a list that is read by offset or by cursor. */
export const pageOf = <T extends z.ZodType>(item: T) =>
  z.object({
    items: z.array(item),
    limit: z.int(),
    offset: z.int(),
    has_more: z.boolean(),
    count: z.int().meta({ description: "Items in this response." }),
  });

/** A page of a list that is read by cursor only. */
export const cursorPageOf = <T extends z.ZodType>(item: T) => pageOf(item).omit({ offset: true });

/**
 * Accepts a schema's values, or null. Unlike `.nullable()` it stays a union in the OpenAPI document:
 * the generator turns `.nullable()` of a component or a custom schema into a schema that refuses null.
 */
export function orNull<T extends z.ZodType>(schema: T): z.ZodUnion<[T, z.ZodNull]> {
  return z.union([schema, z.null()]);
}
