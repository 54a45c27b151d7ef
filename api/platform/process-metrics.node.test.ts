import { expect, test, vi } from "vitest";
import { processMetrics } from "./process-metrics.node.ts";

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
