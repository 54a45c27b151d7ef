import { setTimeout as sleep } from "node:timers/promises";

/** Longer than the slowest machine takes for anything that tests wait for; shorter than a test may take. */
const LIMIT_MS = 180_000;
const EVERY_MS = 20;

/** Asks until it holds. Throws with the name of what did not come within the limit. */
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
