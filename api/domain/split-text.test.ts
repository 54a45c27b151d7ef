import * as fc from "fast-check";
import { expect, test } from "vitest";
import { concatBytes, decodeUtf8 } from "../../shared/bytes.ts";
import { splitText } from "./split-text.ts";

/** Bytes of characters of every length, and of beginnings, ends and impossible bytes. */
const pieces = fc.oneof(
  fc
    .constantFrom("a", "é", "€", "😀", "\ufeff", "\0")
    .map((text) => new TextEncoder().encode(text)),
  fc
    .constantFrom(
      [0xc3],
      [0xe2, 0x82],
      [0xf0, 0x9f, 0x98],
      [0x80],
      [0xff],
      [0xe0, 0x80],
      [0xed, 0xa0],
      [0xf4, 0x90],
      [0xc0],
    )
    .map((bytes) => Uint8Array.from(bytes)),
  fc.uint8Array({ maxLength: 4 }),
);
const streams = fc.array(pieces, { maxLength: 12 }).map(concatBytes);

test("whatever the bytes and wherever they are cut, the texts joined are the decoded stream", () => {
  fc.assert(
    fc.property(streams, fc.array(fc.nat(20)), (bytes, cuts) => {
      let rest = new Uint8Array();
      let joined = "";
      let done = 0;
      for (const size of [...cuts, bytes.length]) {
        const split = splitText(rest, bytes.subarray(done, done + size));
        done = Math.min(bytes.length, done + size);
        joined += split.text;
        rest = new Uint8Array(split.rest);
      }
      expect(joined + decodeUtf8(rest)).toBe(decodeUtf8(bytes));
    }),
    { numRuns: 2000 },
  );
});

test("from every boundary that it stops at, the rest decodes to the same text", () => {
  fc.assert(
    fc.property(streams, (bytes) => {
      for (let cut = 0; cut <= bytes.length; cut++) {
        const { text, length, rest } = splitText(new Uint8Array(), bytes.subarray(0, cut));
        expect(rest.length).toBe(cut - length);
        expect(rest.length).toBeLessThan(4);
        expect(text + decodeUtf8(bytes.subarray(length))).toBe(decodeUtf8(bytes));
      }
    }),
    { numRuns: 2000 },
  );
});
