import * as fc from "fast-check";
import { expect, test } from "vitest";
import { createByteLog } from "./byte-log.ts";
import { collectGarbage } from "../testing/collect-garbage.ts";

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
