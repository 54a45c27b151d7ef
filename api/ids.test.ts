import { validate, version as versionOf } from "uuid";
import { afterEach, describe, expect, test, vi } from "vitest";
import packageJson from "../package.json" with { type: "json" };
import { newId, sha256 as everywhere } from "./ids.ts";
import { processMetrics, sha256 } from "./platform/process.node.ts";
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

test("the event loop is looked at 20 times a second, not 100 times", async () => {
  const metrics = processMetrics();
  // Each reading is of the looks since the one before; without a look, it is a huge number.
  const shortestS = async (): Promise<number> =>
    Number(/^nodejs_eventloop_lag_min_seconds (\S+)$/m.exec(await metrics.text())?.[1]);
  const some = { interval: 200, timeout: 30_000 };
  const shortest = await vi.waitUntil(async () => {
    const seconds = await shortestS();
    return seconds < 60 && seconds;
  }, some);
  expect(shortest).toBeGreaterThan(0.02);
});

const text = "Grüße, \u{1f40d}";

test.each([
  ["text", text],
  ["bytes", new TextEncoder().encode(text)],
  ["a view into a larger buffer", new TextEncoder().encode(`x${text}`).subarray(1)],
  ["text that is hashed on another thread", text.repeat(10_000)],
])("%s has the same hash in every runtime", async (_what, data) => {
  expect(await sha256(data)).toBe(await everywhere(data));
});

test("the hash is that of SHA-256", async () => {
  expect(await sha256("abc")).toBe(
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  );
});
