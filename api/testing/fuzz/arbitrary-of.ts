import * as fc from "fast-check";
import type { JsonSchema } from "../openapi-document.ts";
import { nasty } from "./nasty.ts";

/** Finds the target of a `$ref`. */
export type Lookup = (ref: string) => JsonSchema;

/** Values that a schema allows and, sometimes and at any depth, a value that it does not allow. */
export function arbitraryOf(schema: JsonSchema, lookup: Lookup, odd = 1): fc.Arbitrary<unknown> {
  return fc.oneof(
    { weight: 12, arbitrary: allowed(schema, lookup, odd) },
    { weight: odd, arbitrary: nasty },
  );
}

function allowed(schema: JsonSchema, lookup: Lookup, odd: number): fc.Arbitrary<unknown> {
  if (typeof schema["$ref"] === "string") return allowed(lookup(schema["$ref"]), lookup, odd);
  if (Array.isArray(schema["enum"])) return fc.constantFrom(...(schema["enum"] as unknown[]));
  if ("const" in schema) return fc.constant(schema["const"]);
  const options = (schema["anyOf"] ?? schema["oneOf"]) as JsonSchema[] | undefined;
  if (options) return fc.oneof(...options.map((option) => allowed(option, lookup, odd)));
  switch (schema["type"] as string | string[] | undefined) {
    case "string":
      return text(schema);
    case "integer":
      return fc.oneof(fc.integer(range(schema)), fc.constantFrom(...ends(schema)));
    case "number":
      return fc.double({ ...range(schema), noNaN: true, noDefaultInfinity: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array":
      return fc.array(arbitraryOf((schema["items"] ?? {}) as JsonSchema, lookup, odd), {
        maxLength: 5,
      });
    case "object":
      return object(schema, lookup, odd);
    case undefined:
    default:
      return fc.jsonValue({ maxDepth: 3 });
  }
}

function object(schema: JsonSchema, lookup: Lookup, odd: number): fc.Arbitrary<unknown> {
  const properties = (schema["properties"] ?? {}) as Record<string, JsonSchema>;
  const fields = Object.fromEntries(
    Object.entries(properties).map(([name, field]) => [name, arbitraryOf(field, lookup, odd)]),
  );
  const named = fc.record(fields, { requiredKeys: (schema["required"] ?? []) as string[] });
  if (Object.keys(properties).length > 0) return named;
  return fc.dictionary(fc.string({ maxLength: 20, unit: "grapheme" }), fc.jsonValue(), {
    maxKeys: 4,
  });
}

interface StringSchema {
  format?: string;
  contentEncoding?: string;
  minLength?: number;
  maxLength?: number;
}

function text(schema: StringSchema): fc.Arbitrary<string> {
  if (schema.format === "uuid") return fc.uuid();
  if (schema.contentEncoding === "base64") return fc.base64String({ maxLength: 200 });
  if (schema.format === "date-time") {
    return fc.date({ noInvalidDate: true }).map((date) => date.toISOString());
  }
  const { minLength = 0, maxLength = 200 } = schema;
  return fc.string({ minLength, maxLength: Math.min(maxLength, 200), unit: "grapheme" });
}

function range(schema: JsonSchema): { min: number; max: number } {
  const { minimum = -1000, maximum = 2 ** 31 - 1 } = schema as {
    minimum?: number;
    maximum?: number;
  };
  return { min: Math.max(minimum, -(2 ** 31)), max: Math.min(maximum, 2 ** 31 - 1) };
}

function ends(schema: JsonSchema): number[] {
  const { min, max } = range(schema);
  return [min, min - 1, max, max + 1];
}
