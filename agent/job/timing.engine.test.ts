import { expect, it } from "vitest";
import type { PollRequest } from "../../shared/wire/agent/lease.ts";
import { api, nextResult, printed, start, useWorld } from "../testing/agent-world.ts";
import { testJob } from "../testing/test-agent.ts";

useWorld();

/** Prints how long it slept, in seconds. */
const code = `
import time
began = time.monotonic()
time.sleep(0.7)
print(time.monotonic() - began)`;

/** Runs a job; with its timing how long the code says it took, and what went by outside, in ms. */
async function run() {
  const offeredMs = performance.now();
  api.offer(testJob({ code }));
  const report = await nextResult();
  const outsideMs = performance.now() - offeredMs;
  const toldMs = 1000 * Number(printed(report));
  return { ...report.timing, usage: report.resource_usage, toldMs, outsideMs };
}

/** Resolves when the agent has told of a container that waits. */
async function warm(): Promise<void> {
  for (let n = api.count("/poll"); ; n++) {
    const { warm } = (await api.request("/poll", n)).json as PollRequest;
    if (warm > 0) return;
    api.wake();
  }
}

it.each(["runc", "runsc"])(
  "reports where the time goes, cold and warm, under %s",
  async (runtime) => {
    await start({
      AIRLOCK_CONTAINER_RUNTIME: runtime,
      AIRLOCK_CONTAINER_BACKEND: "engine",
      AIRLOCK_WARM_POOL_SIZE: "1",
    });
    const cold = await run();
    await warm();
    const hot = await run();
    for (const { startup_ms, execution_ms, total_ms, usage, toldMs, outsideMs } of [cold, hot]) {
      expect(execution_ms).toBeGreaterThanOrEqual(Math.floor(toldMs));
      expect(usage?.wall_time_ms).toBe(execution_ms);
      expect(startup_ms + execution_ms).toBeLessThanOrEqual(total_ms);
      expect(total_ms).toBeLessThanOrEqual(outsideMs);
    }
    expect(cold.startup_ms).toBeGreaterThan(20);
    expect(hot.startup_ms).toBeLessThan(cold.startup_ms);
    expect(cold).toMatchObject({ dep_install_ms: 0, phase_at_exit: "completed" });
  },
);
