import * as fc from "fast-check";
import { expect, test } from "vitest";
import { byteRange } from "./byte-range.ts";

test.each<[string | undefined, ReturnType<typeof byteRange>]>([
  [undefined, undefined],
  ["bytes=0-0", { offset: 0, length: 1 }],
  ["bytes=2-4", { offset: 2, length: 3 }],
  ["bytes=2-", { offset: 2, length: 8 }],
  ["bytes=-3", { offset: 7, length: 3 }],
  ["bytes=-99", { offset: 0, length: 10 }],
  ["bytes=8-99", { offset: 8, length: 2 }],
  ["bytes=10-", "unsatisfiable"],
  ["bytes=-0", "unsatisfiable"],
  ["bytes=4-2", undefined],
  ["bytes=0-1,3-4", undefined],
  ["bytes=-", undefined],
  ["lines=1-2", undefined],
  ["bytes=a-b", undefined],
])("Range %s of ten bytes", (header, expected) => {
  expect(byteRange(header, 10)).toEqual(expected);
});

test("a range lies inside its file, whatever the header", () => {
  const header = fc.oneof(
    fc.string(),
    fc.tuple(fc.nat(), fc.option(fc.nat())).map(([a, b]) => `bytes=${a}-${b ?? ""}`),
  );
  fc.assert(
    fc.property(header, fc.nat(), (text, size) => {
      const range = byteRange(text, size);
      if (range === undefined || range === "unsatisfiable") return;
      expect(range.length).toBeGreaterThan(0);
      expect(range.offset).toBeGreaterThanOrEqual(0);
      expect(range.offset + range.length).toBeLessThanOrEqual(size);
    }),
  );
});
