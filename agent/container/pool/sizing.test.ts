import { expect, test } from "vitest";
import { noRequests, rateAt, shareOut, countWanted, addRequest } from "./sizing.ts";

const size = { least: 2, most: 100, slots: 4 };

test.each([
  [0, 200, 2],
  [1, 200, 2],
  [5, 200, 3],
  [10, 200, 4],
  [1000, 200, 6],
  [1000, 0, 2],
])("%d requests per second of what takes %d ms to start: %d wait", (perS, startMs, count) => {
  expect(countWanted(size, perS, startMs)).toBe(count);
});

test("a least of 0 keeps nothing, however often it is ordered", () => {
  expect(countWanted({ ...size, least: 0 }, 1000, 1000)).toBe(0);
});

test("the rate follows the requests, and is forgotten", () => {
  let rate = noRequests;
  for (let ms = 0; ms <= 60_000; ms += 100) rate = addRequest(rate, ms);
  expect(rateAt(rate, 60_000)).toBeCloseTo(10, 0);
  expect(rateAt(rate, 70_000)).toBeCloseTo(10 / Math.E, 0);
  expect(rateAt(rate, 160_000)).toBeLessThan(0.01);
  expect(rateAt(noRequests, 5)).toBe(0);
});

test("the first in line gets all that it wants, the last what is left", () => {
  expect(shareOut([2, 4, 3, 1], 7)).toEqual([2, 4, 1, 0]);
  expect(shareOut([2], 0)).toEqual([0]);
});
