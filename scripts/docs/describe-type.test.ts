import { expect, test } from "vitest";
import { z } from "zod";
import { describeType, type JsonSchema } from "./describe-type.ts";

test.each<[string, z.ZodType]>([
  ["`true` or `false`", z.boolean()],
  ["integer", z.int()],
  ["integer, at least 1", z.int().min(1)],
  ["integer, 0 to 65535", z.int().min(0).max(65_535)],
  ["number, at most 2.5", z.number().max(2.5)],
  ["text", z.string().min(1)],
  ["text, at most 9 characters", z.string().max(9)],
  ["list of text, at least 16 characters", z.array(z.string().min(16))],
  ["list of text", z.array(z.union([z.ipv4(), z.cidrv4()]))],
  ["`a` or `b`", z.enum(["a", "b"])],
  ["table of text", z.record(z.string(), z.string())],
  ["table of tables", z.record(z.string(), z.strictObject({ a: z.string() }))],
  ["table", z.strictObject({ a: z.string() })],
  ["URL", z.url()],
])("%s", (words, schema) => {
  expect(describeType(z.toJSONSchema(schema) as JsonSchema)).toBe(words);
});
