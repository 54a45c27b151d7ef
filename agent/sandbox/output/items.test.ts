import { describe, expect, test } from "vitest";
import { limits } from "../../../shared/wire/limits.ts";
import { FrameError } from "../protocol/frames.ts";
import { createItems } from "./items.ts";

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
