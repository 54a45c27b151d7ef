import * as fc from "fast-check";
import { z } from "zod";
import type { JsonSchema } from "../openapi-document.ts";
import { arbitraryOf } from "./arbitrary-of.ts";
import { damaged } from "./nasty.ts";

/** Bodies with a message of a schema, mostly undamaged. */
export function bodiesOf(schema: z.ZodType): fc.Arbitrary<Uint8Array<ArrayBuffer>> {
  return valuesOf(schema, 1).chain((value) => damaged(JSON.stringify(value)));
}

/** Bodies with a message that the schema accepts. */
export function acceptedBodiesOf(schema: z.ZodType): fc.Arbitrary<Uint8Array<ArrayBuffer>> {
  return valuesOf(schema, 0)
    .filter((value) => schema.safeParse(value).success)
    .map((value) => new Uint8Array(Buffer.from(JSON.stringify(value))));
}

function valuesOf(schema: z.ZodType, odd: number): fc.Arbitrary<unknown> {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as JsonSchema;
  const lookup = (ref: string): JsonSchema =>
    ref
      .split("/")
      .slice(1)
      .reduce<unknown>((at, step) => (at as JsonSchema)[step], json) as JsonSchema;
  return arbitraryOf(json, lookup, odd);
}
