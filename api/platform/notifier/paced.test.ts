import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { paced } from "./paced.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("100 requests within a second make 10 calls, and one more after the last request", () => {
  const calls: number[] = [];
  let asked = 0;
  const ask = paced(() => calls.push(asked), 100);
  for (; asked < 100; vi.advanceTimersByTime(10)) {
    asked++;
    ask();
  }
  vi.advanceTimersByTime(10_000);
  expect(calls).toEqual([1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
});

test("a single request makes one call, at once", () => {
  const work = vi.fn<() => void>();
  const ask = paced(work, 100);
  for (const calls of [1, 2]) {
    ask();
    expect(work).toHaveBeenCalledTimes(calls);
    vi.advanceTimersByTime(10_000);
  }
  expect(work).toHaveBeenCalledTimes(2);
});
