import { z } from "zod";

/**
 * A schema, or null. As `.nullable()`, but stays a union in the OpenAPI document: there `.nullable()`
 * of a component, or of a custom schema, comes out as a schema that refuses null.
 */
export function orNull<T extends z.ZodType>(schema: T): z.ZodUnion<[T, z.ZodNull]> {
  return z.union([schema, z.null()]);
}
