import { setTimeout as sleep } from "node:timers/promises";

/** Longer than any wait of a test on the slowest machine, and shorter than the time limit of a test. */
const LIMIT_MS = 180_000;
const EVERY_MS = 20;

/** Checks a condition until it is true. @throws Error that names the condition, after the limit. */
export async function waitUntil(
  what: string,
  holds: () => boolean | Promise<boolean>,
  limitMs = LIMIT_MS,
): Promise<void> {
  const deadline = performance.now() + limitMs;
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`waited ${limitMs} ms in vain: ${what}`);
    await sleep(EVERY_MS);
  }
}
