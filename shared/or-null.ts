import { z } from "zod";

/**
 * Accepts a schema's values, or null. Unlike `.nullable()` it stays a union in the OpenAPI document:
 * the generator turns `.nullable()` of a component or a custom schema into a schema that refuses null.
 */
export function orNull<T extends z.ZodType>(schema: T): z.ZodUnion<[T, z.ZodNull]> {
  return z.union([schema, z.null()]);
}
