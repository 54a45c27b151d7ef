import { beforeEach, expect, it } from "vitest";
import { limits } from "../../shared/wire/limits.ts";
import type { BuildLogChunk } from "../../shared/wire/agent/lease.ts";
import { type BuildLog, createBuildLog } from "./build-log.ts";
import { createTestClock, type TestClock } from "../testing/test-clock.ts";

let clock: TestClock;
let sent: BuildLogChunk[];
let log: BuildLog;

beforeEach(() => {
  clock = createTestClock();
  sent = [];
  log = createBuildLog(clock, async (chunk) => void sent.push(chunk));
});

const received = (): string =>
  sent
    .map(({ offset, data_base64 }, n) => {
      const before = sent.slice(0, n).map((chunk) => Buffer.from(chunk.data_base64, "base64"));
      expect(offset).toBe(Buffer.concat(before).length);
      return Buffer.from(data_base64, "base64").toString();
    })
    .join("");

it("sends new output each second, and the rest at the end", async () => {
  log.add(Buffer.from("one "));
  log.add(Buffer.from("two "));
  await clock.sleeping(1000);
  expect(sent).toEqual([]);
  clock.advance(1000);
  await clock.sleeping(1000);
  expect(received()).toBe("one two ");
  log.add(Buffer.from("three"));
  await log.close();
  expect(received()).toBe("one two three");
});

it("leaves out the middle of a log that is too long, and stays within the limit", async () => {
  const line = `${"x".repeat(99)}\n`;
  for (let n = 0; n < 30_000; n++) log.add(Buffer.from(line));
  log.add(Buffer.from("the end"));
  await log.close();
  const text = received();
  expect(Buffer.byteLength(text)).toBeLessThanOrEqual(limits.buildLogMaxBytes);
  expect(text).toMatch(/^x{99}\n/);
  expect(text).toMatch(/\n… \d+ bytes left out …\n/);
  expect(text.endsWith("x\nthe end")).toBe(true);
});

it("reports at its close that the log could not be sent", async () => {
  const failing = createBuildLog(clock, () => Promise.reject(new Error("gone")));
  failing.add(Buffer.from("x"));
  await expect(failing.close()).rejects.toThrow("gone");
});
