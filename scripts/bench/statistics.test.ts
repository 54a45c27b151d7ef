import { expect, test } from "vitest";
import { percentile, summarize } from "./statistics.ts";

const toHundred = Array.from({ length: 100 }, (_, i) => i + 1);

test.each([
  [0, 1],
  [1, 1],
  [50, 50],
  [95, 95],
  [99, 99],
  [99.5, 100],
  [100, 100],
])("percentile %i of 1 to 100 is %i", (percent, sample) => {
  expect(percentile(toHundred, percent)).toBe(sample);
});

test("a percentile is one of the samples, however few there are", () => {
  expect(percentile([3], 99)).toBe(3);
  expect(percentile([3, 7], 50)).toBe(3);
  expect(percentile([3, 7], 51)).toBe(7);
});

test("the order of the samples does not matter, and it is not changed", () => {
  const samples = [10, 9, 100, 1, 2];
  expect(summarize(samples)).toEqual({
    count: 5,
    min: 1,
    p50: 9,
    p95: 100,
    p99: 100,
    max: 100,
    mad: 7,
  });
  expect(samples).toEqual([10, 9, 100, 1, 2]);
});

test("one outlier does not change the spread", () => {
  expect(summarize([10, 10, 11, 9, 5000]).mad).toBe(1);
});

test("a measurement without samples is an error", () => {
  expect(() => summarize([])).toThrow("no sample");
});
