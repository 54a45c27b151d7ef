import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { limits } from "../../shared/wire/limits.ts";
import { collectGarbage } from "../testing/hostile.ts";
import { FrameError } from "./frames.ts";
import { createByteLog, createItems, isArtifactName, readResultFile } from "./output.ts";

const piece = (text: string, hasMore = false): Buffer =>
  Buffer.concat([Buffer.from([hasMore ? 1 : 0]), Buffer.from(text)]);
const one = JSON.stringify({ main: false, data: { "text/plain": "é" } });
const at = (stdout: number) => ({ stdout, stderr: 0 });

test("the pieces of an item are joined; it stands where its first piece came", () => {
  const items = createItems();
  const bytes = Buffer.from(one);
  const cut = bytes.indexOf(Buffer.from("é")) + 1;
  const first = Buffer.concat([Buffer.from([1]), bytes.subarray(0, cut)]);
  expect(items.takeItem(first, at(7))).toBeUndefined();
  const last = Buffer.concat([Buffer.from([0]), bytes.subarray(cut)]);
  const expected = {
    number: 1,
    main: false,
    data: { "text/plain": "é" },
    stdoutAt: 7,
    stderrAt: 0,
  };
  expect(items.takeItem(last, at(9))).toEqual(expected);
  expect(items.takeItem(piece(one), at(9))).toMatchObject({ number: 2, stdoutAt: 9 });
  expect(items.hasInvalid).toBe(false);
});

test.each([
  ["no JSON", "{"],
  ["no item", "[]"],
  ["no forms", `{"main":true,"data":{}}`],
  ["a form that is no text", `{"main":true,"data":{"text/plain":1}}`],
  ["a type that breaks headers", `{"main":true,"data":{"a/b\\r\\nc":"d"}}`],
  ["more forms than anybody shows", JSON.stringify({ main: true, data: manyForms() })],
])("%s is left out, and the next item has its number", (_what, text) => {
  const items = createItems();
  expect(items.takeItem(piece(text), at(0))).toBeUndefined();
  expect(items.takeItem(piece(one), at(0))?.number).toBe(1);
  expect(items.hasInvalid).toBe(true);
});

test("surrogates without their other half are replaced", () => {
  const items = createItems();
  const text = `{"main":true,"data":{"text/plain":"\\ud800"}}`;
  expect(items.takeItem(piece(text), at(0))?.data["text/plain"]).toBe("\ufffd");
});

describe("PID 1 relays no more than the limits", () => {
  const taking = (frames: Iterable<Buffer>) => () => {
    const items = createItems();
    for (const frame of frames) items.takeItem(frame, at(0));
  };

  test("of items", () => {
    expect(taking(Array<Buffer>(limits.resultItemsMax).fill(piece(one)))).not.toThrow();
    expect(taking(Array<Buffer>(limits.resultItemsMax + 1).fill(piece(one)))).toThrow(FrameError);
  });

  test("of bytes, and no piece without any", () => {
    expect(taking([piece("x".repeat(limits.resultItemMaxBytes + 1), true)])).toThrow(FrameError);
    expect(taking([piece("", true)])).toThrow(FrameError);
    expect(taking([Buffer.alloc(0)])).toThrow(FrameError);
  });
});

describe("calls", () => {
  const call = (fields: object) => piece(JSON.stringify(fields));
  const good = { id: 7, name: "f", arguments: { a: 1 } };

  test("have an id of their own and a number in one order with items", () => {
    const items = createItems(["f"]);
    items.takeItem(piece(one), at(0));
    const { id: _, ...told } = good;
    const expected = { id: 7, call: { ...told, number: 2, stdoutAt: 5, stderrAt: 0 } };
    expect(items.takeCall(call(good), at(5))).toEqual(expected);
    expect(items.takeItem(piece(one), at(0))?.number).toBe(3);
    expect(items.shown).toHaveLength(2);
  });

  test("keep their numbers as they were written", () => {
    const text = '{"id":1,"name":"f","arguments":{"a":[1.0,12345678901234567890]}}';
    const told = createItems(["f"]).takeCall(piece(text), at(0));
    expect(JSON.stringify(told?.call?.arguments)).toBe('{"a":[1.0,12345678901234567890]}');
  });

  test.each([
    ["no JSON", piece("{"), 0],
    ["no id", call({ ...good, id: undefined }), 0],
    ["an id of another kind", call({ ...good, id: "7" }), 0],
    ["a name that the caller did not give", call({ ...good, name: "g" }), 7],
    ["a name of objects", call({ ...good, name: "constructor" }), 7],
    ["arguments that are a list", call({ ...good, arguments: [] }), 7],
    [
      "arguments nested too deep",
      piece(`{"id":1,"name":"f","arguments":{"a":${"[".repeat(600)}${"]".repeat(600)}}}`),
      1,
    ],
  ])("%s: it is none, its id gets an answer, and the next has its number", (_what, frame, id) => {
    const items = createItems(["f"]);
    expect(items.takeCall(frame, at(0))).toEqual({ id });
    expect(items.takeCall(call(good), at(0))).toMatchObject({ call: { number: 1 } });
  });

  test("are bounded in number and bytes", () => {
    const taking = (frames: Iterable<Buffer>) => () => {
      const items = createItems(["f"]);
      for (const frame of frames) items.takeCall(frame, at(0));
    };
    const most = Array<Buffer>(limits.toolCallsMax).fill(call(good));
    expect(taking(most)).not.toThrow();
    expect(taking([...most, call(good)])).toThrow(FrameError);
    const large = piece("x".repeat(limits.toolCallMaxBytes));
    const all = limits.toolCallsMaxBytes / limits.toolCallMaxBytes;
    expect(taking(Array<Buffer>(all).fill(large))).not.toThrow();
    expect(taking(Array<Buffer>(all + 1).fill(large))).toThrow(FrameError);
    expect(taking([piece("x".repeat(limits.toolCallMaxBytes + 1))])).toThrow(FrameError);
  });
});

function manyForms(): Record<string, string> {
  return Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`a/b${n}`, "c"]));
}

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

test.each([
  "a",
  "plot.png",
  "sub/dir/x.csv",
  ".hidden",
  "a b",
  "größe",
  "日本",
  "%2e%2e",
  "..a",
  "~",
])("%o is a name", (name) => expect(isArtifactName(name)).toBe(true));

test.each([
  "",
  "/a",
  "a/",
  "a//b",
  "..",
  "a/../b",
  "./a",
  "a\\b",
  "a\nb",
  "a\r\nX-Header: 1",
  "nul\0",
  "\u001b[31m",
  "\u007f",
  "\u0085",
  "\u202egnp.exe",
  "\u2028",
  "\u2066",
  "\ud800",
  "_code.py",
  "_input.json",
  "x".repeat(1025),
  "ü".repeat(513),
])("%o is none", (name) => expect(isArtifactName(name)).toBe(false));

test("gives back what was added, in pieces of any size", () => {
  const sizes = fc.array(
    fc.oneof(fc.integer({ max: 20, min: 0 }), fc.integer({ max: 90_000, min: 0 })),
  );
  fc.assert(
    fc.property(sizes, (lengths) => {
      const log = createByteLog();
      const pieces = lengths.map((length, i) => Buffer.alloc(length, i));
      for (const piece of pieces) log.add(piece);
      expect(log.all().equals(Buffer.concat(pieces))).toBe(true);
      expect(log.length).toBe(Buffer.concat(pieces).length);
    }),
    { numRuns: 50 },
  );
});

test("a million one-byte pieces take about a megabyte", () => {
  const held = (): number => {
    collectGarbage();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const log = createByteLog();
  const before = held();
  for (let i = 0; i < 1_000_000; i++) log.add(Buffer.of(i));
  expect(held() - before).toBeLessThan(4_000_000);
  expect(log.all()[999_999]).toBe(999_999 & 255);
});
