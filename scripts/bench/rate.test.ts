import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { rate } from "./rate.ts";

test("keeps the workers busy, and does not count the warm-up", async () => {
  let begun = 0;
  let open = 0;
  let most = 0;
  const perSecond = await rate(3, { leadInMs: 1000, forMs: 2000 }, async () => {
    begun += 1;
    most = Math.max(most, (open += 1));
    await sleep(20);
    open -= 1;
  });
  expect(most).toBe(3);
  expect(open).toBe(0);
  const done = perSecond * 2;
  expect(done).toBeGreaterThan(0);
  // At the least the first of each worker was over before the lead-in was.
  expect(done).toBeLessThanOrEqual(begun - 3);
});

test("a task that fails ends the measurement", async () => {
  const failing = rate(2, { leadInMs: 0, forMs: 50 }, () => Promise.reject(new Error("no")));
  await expect(failing).rejects.toThrow("no");
});
