import { setTimeout as sleep } from "node:timers/promises";

/** Longer than any wait of a test on the slowest machine, and shorter than the time limit of a test. */
const LIMIT_MS = 180_000;
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
