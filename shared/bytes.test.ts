import * as fc from "fast-check";
import { expect, test } from "vitest";
import { concatBytes, parseBytes } from "./bytes.ts";

test.each([
  ["0", 0],
  ["1024", 1024],
  ["7b", 7],
  ["1k", 1024],
  ["512m", 512 * 1024 ** 2],
  ["2G", 2 * 1024 ** 3],
])("%s is %d bytes", (text, bytes) => {
  expect(parseBytes(text)).toBe(bytes);
});

test.each(["", "m", "-1m", "1.5g", "1 m", "1kb", "0x10", "1t", "١m"])(
  "%j is not a size",
  (text) => {
    expect(() => parseBytes(text)).toThrow(`not a size: ${text}`);
  },
);

test("parts of any size are joined in order", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array()), (parts) => {
      expect([...concatBytes(parts)]).toEqual(parts.flatMap((part) => [...part]));
    }),
  );
});
