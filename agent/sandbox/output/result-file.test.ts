import { expect, test } from "vitest";
import { limits } from "../../../shared/wire/limits.ts";
import { readResultFile } from "./result-file.ts";

test.each([
  ["numbers with their digits", '{"a": 1.0, "b": 12345678901234567890}'],
  ["duplicate keys", '{"a": 1, "a": 2}'],
  ["keys that mean something to JavaScript", '{"__proto__": {"x": 1}, "constructor": null}'],
  ["half a surrogate pair, escaped", String.raw`{"a": "\ud800"}`],
  ["white space around it", ' \n{"a": []}\r\n'],
  ["nesting up to the limit", `{"a": ${"[".repeat(511)}${"]".repeat(511)}}`],
  ["a byte order mark before it", '\ufeff{"a": 1}'],
])("an object is given back as it was written: %s", async (_what, text) => {
  expect(await readResultFile(Buffer.from(text))).toEqual({ kind: "object", text });
});

test.each([
  ["", "it is not JSON"],
  ['{"a": 1', "it is not JSON"],
  ['{"a": NaN}', "it is not JSON"],
  ['{"a": -Infinity}', "it is not JSON"],
  ['{"a": 1e400}', "it has a number that is too large for a double"],
  ['{"a": [{"b": -1e999}]}', "it has a number that is too large for a double"],
  ["[1]", "it holds an array, not an object"],
  ["null", "it holds null, not an object"],
  ['"text"', "it holds a string, not an object"],
  ["12", "it holds a number, not an object"],
  ["[".repeat(100_000), `it is nested more than ${limits.jsonDepthMax} deep`],
])("%.20s is no result", async (text, problem) => {
  const result = await readResultFile(Buffer.from(text));
  expect(result).toEqual({ kind: "invalid", problem: expect.stringContaining(problem) as string });
});

test("bytes that are not UTF-8 are not a result", async () => {
  const bytes = Buffer.from('{"a": "\xe4"}', "latin1");
  expect(await readResultFile(bytes)).toEqual({ kind: "invalid", problem: "it is not UTF-8" });
});

test("a result with more keys and values than the limit is refused, with advice", async () => {
  const result = await readResultFile(Buffer.from(`{"a": [${"{},".repeat(3_400_000)}{}]}`));
  const problem = `it has more than ${limits.resultJsonMaxValues} keys and values: write other data to another file of /output`;
  expect(result).toEqual({ kind: "invalid", problem });
});

test("a result with as many keys and values as the limit is accepted", async () => {
  const zeros = Array(limits.resultJsonMaxValues - 3).fill(0);
  const { kind } = await readResultFile(Buffer.from(JSON.stringify({ a: zeros })));
  expect(kind).toBe("object");
});
