import { validate, version as versionOf } from "uuid";
import { afterEach, describe, expect, test, vi } from "vitest";
import packageJson from "../package.json" with { type: "json" };
import { newId } from "./ids.ts";
import { version } from "./version.ts";

describe("new id", () => {
  afterEach(() => void vi.useRealTimers());

  const ids = (count: number): string[] => Array.from({ length: count }, newId);

  test("new ids are UUIDs of version 7, and each is greater than the one before", () => {
    const made = ids(1000);
    expect(made.every((id) => validate(id) && versionOf(id) === 7)).toBe(true);
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
});

test("the API has the version of the package", () => {
  expect(version).toBe(packageJson.version);
});
