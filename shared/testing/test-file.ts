import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { configure, type LogLevel } from "@logtape/logtape";
import { afterAll } from "vitest";

/** The tier whose tests this process runs; vitest.config.ts sets it. */
export const tier = process.env["TEST_TIER"];

/** The lab repeats some files with another runtime or on another platform (scripts/test/tiers.ts). */
export const isLab = tier === "lab";

const ends: (() => unknown)[] = [];

/**
 * Calls a function at the end of the test file that runs, the last one given first. `afterAll` in a module
 * of helpers would not do: files of one process share the module, and only the first runs its hooks.
 */
export function atEndOfFile(end: () => unknown): void {
  ends.push(end);
}

/** Set-up of each test file calls it. */
export function endWithFile(): void {
  afterAll(async () => {
    for (let end = ends.pop(); end !== undefined; end = ends.pop()) await end();
  });
}

/** A new folder, until the end of the test file that runs. */
export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "airlock-test-"));
  atEndOfFile(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Longer than any wait of a test on the slowest machine, and shorter than the time limit of a test (vitest.config.ts). */
const LIMIT_MS = 180_000 * Number(process.env["TEST_PATIENCE"] ?? 1);
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [20, 200];

/** Checks a condition until it is true. @throws Error that names the condition, after the limit. */
export async function waitUntil(
  what: string,
  holds: () => boolean | Promise<boolean>,
  limitMs = LIMIT_MS,
): Promise<void> {
  const deadline = performance.now() + limitMs;
  for (let pauseMs = FIRST_PAUSE_MS; !(await holds()); pauseMs *= 1.5) {
    if (performance.now() > deadline) throw new Error(`waited ${limitMs} ms in vain: ${what}`);
    await sleep(Math.min(pauseMs, LONGEST_PAUSE_MS));
  }
}

/** The messages that are logged from now on at this level or above, until `reset()`. */
export async function logLines(lowestLevel: LogLevel): Promise<string[]> {
  const lines: string[] = [];
  await configure({
    reset: true,
    sinks: { lines: ({ message }) => void lines.push(message.join("")) },
    loggers: [{ category: [], lowestLevel, sinks: ["lines"] }],
  });
  return lines;
}

/** Counts the turns of the event loop. */
export function countTurns() {
  let turn = 0;
  let next = setImmediate(function count() {
    turn++;
    next = setImmediate(count);
  });
  return { now: () => turn, [Symbol.dispose]: () => clearImmediate(next) };
}
