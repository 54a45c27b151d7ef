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
  expect(items.take(first, at(7))).toBeUndefined();
  const last = Buffer.concat([Buffer.from([0]), bytes.subarray(cut)]);
  const expected = {
    number: 1,
    main: false,
    data: { "text/plain": "é" },
    stdoutAt: 7,
    stderrAt: 0,
  };
  expect(items.take(last, at(9))).toEqual(expected);
  expect(items.take(piece(one), at(9))).toMatchObject({ number: 2, stdoutAt: 9 });
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
  expect(items.take(piece(text), at(0))).toBeUndefined();
  expect(items.take(piece(one), at(0))?.number).toBe(1);
  expect(items.hasInvalid).toBe(true);
});

test("surrogates without their other half are replaced", () => {
  const items = createItems();
  const text = `{"main":true,"data":{"text/plain":"\\ud800"}}`;
  expect(items.take(piece(text), at(0))?.data["text/plain"]).toBe("\ufffd");
});

describe("PID 1 relays no more than the limits", () => {
  const taking = (frames: Iterable<Buffer>) => () => {
    const items = createItems();
    for (const frame of frames) items.take(frame, at(0));
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

function manyForms(): Record<string, string> {
  return Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`a/b${n}`, "c"]));
}
