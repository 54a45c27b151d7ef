import { validate, version } from "uuid";
import { afterEach, expect, test, vi } from "vitest";
import { newId } from "./new-id.ts";

afterEach(() => void vi.useRealTimers());

const ids = (count: number): string[] => Array.from({ length: count }, newId);

test("new ids are UUIDs of version 7, and each is greater than the one before", () => {
  const made = ids(1000);
  expect(made.every((id) => validate(id) && version(id) === 7)).toBe(true);
  expect(made).toEqual([...new Set(made)].sort());
});

test("ids made at one time, or after the clock was set back, still ascend", () => {
  vi.useFakeTimers({ now: Date.now() + 1000 });
  const before = ids(300);
  vi.setSystemTime(Date.now() - 500);
  const made = [...before, ...ids(300)];
  expect(made).toEqual([...new Set(made)].sort());
});

test("the random part of an id is its own", () => {
  expect(new Set(ids(1000).map((id) => id.slice(-12))).size).toBe(1000);
});
