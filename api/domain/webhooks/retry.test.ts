import { expect, test } from "vitest";
import { nextTry, pausesMs } from "./retry.ts";

const hourMs = 3_600_000;
const failure = { tries: 1, status: 500, retryAfter: null };

test("pauses grow from seconds to a day, three days in all; then there is no further try", () => {
  expect(pausesMs).toEqual(pausesMs.toSorted((a, b) => a - b));
  const inAllMs = pausesMs.reduce((sum, pause) => sum + pause, 0);
  expect(inAllMs / hourMs).toBeCloseTo(72, 0);
  expect(nextTry({ ...failure, tries: pausesMs.length }, 0, 0.5)).toBe(24 * hourMs);
  expect(nextTry({ ...failure, tries: pausesMs.length + 1 }, 0, 0.5)).toBeUndefined();
});

test("calls that failed at the same time are spread over a fifth of the pause", () => {
  const at = (random: number) => nextTry({ ...failure, tries: 4 }, 1000, random);
  expect([at(0), at(0.5), at(1)]).toEqual([541_000, 601_000, 661_000]);
});

test.each([
  ["120", 120_000],
  ["Thu, 01 Jan 1970 00:02:01 GMT", 120_000],
  ["1", 5000],
  ["999999999", 24 * hourMs],
  ["soon", 5000],
  ["-5", 5000],
])("Retry-After: %s delays the next try, but not for more than a day", (retryAfter, pauseMs) => {
  const after = nextTry({ tries: 1, status: 503, retryAfter }, 1000, 0.5);
  expect(after).toBe(1000 + pauseMs);
});

test("410 ends the delivery", () => {
  expect(nextTry({ ...failure, status: 410, retryAfter: "5" }, 0, 0)).toBeUndefined();
});
