import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { OVER, systemClock } from "./clock.ts";

test("a sleep lasts as long as it should, and leaves no listener on the signal", async () => {
  const { signal } = new AbortController();
  const beganMs = systemClock.nowMs();
  await systemClock.sleep(20, signal);
  expect(systemClock.nowMs() - beganMs).toBeGreaterThan(18);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("an aborted sleep rejects with the signal's reason, before and during the sleep", async () => {
  const cut = new AbortController();
  const sleeping = systemClock.sleep(600_000, cut.signal);
  cut.abort(OVER);
  await expect(sleeping).rejects.toBe(OVER);
  await expect(systemClock.sleep(600_000, cut.signal)).rejects.toBe(OVER);
});
