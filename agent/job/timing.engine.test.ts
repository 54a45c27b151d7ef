import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { PollRequest, ResultReport } from "../../shared/wire/agent/lease.ts";
import { engineHost } from "../engine/engine-host.ts";
import { startAgent } from "../testing/agent-process.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

/** Prints how long it slept, in seconds. */
const code = `
import time
began = time.monotonic()
time.sleep(0.7)
print(time.monotonic() - began)`;

/** Runs a job; with its timing how long the code says it took, and what went by outside, in ms. */
async function run(api: FakeApi) {
  const job = testJob({ code });
  const offeredMs = performance.now();
  api.offer(job);
  const report = (await api.request(`/leases/${job.lease_id}/result`)).json as ResultReport;
  const outsideMs = performance.now() - offeredMs;
  const toldMs = 1000 * Number(Buffer.from(report.stdout_base64, "base64").toString());
  return { ...report.timing, usage: report.resource_usage, toldMs, outsideMs };
}

/** Resolves when the agent has told of a container that waits. */
async function warm(api: FakeApi): Promise<void> {
  for (let n = api.count("/poll"); ; n++) {
    const { warm } = (await api.request("/poll", n)).json as PollRequest;
    if (warm > 0) return;
    api.wake();
  }
}

it.each(["runc", "runsc"])(
  "reports where the time goes, cold and warm, under %s",
  async (runtime) => {
    await using api = await startFakeApi();
    const folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
    const agent = startAgent({
      AIRLOCK_API_URL: api.url,
      AIRLOCK_AGENT_NAME: `test-${randomUUID()}`,
      AIRLOCK_DOCKER_HOST: engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env),
      AIRLOCK_SPOOL_DIR: folder,
      AIRLOCK_CONTAINER_RUNTIME: runtime,
      AIRLOCK_CONTAINER_BACKEND: "engine",
      AIRLOCK_WARM_POOL_SIZE: "1",
    });
    try {
      await agent.ready;
      const cold = await run(api);
      await warm(api);
      const hot = await run(api);
      for (const { startup_ms, execution_ms, total_ms, usage, toldMs, outsideMs } of [cold, hot]) {
        expect(execution_ms).toBeGreaterThanOrEqual(Math.floor(toldMs));
        expect(usage?.wall_time_ms).toBe(execution_ms);
        expect(startup_ms + execution_ms).toBeLessThanOrEqual(total_ms);
        expect(total_ms).toBeLessThanOrEqual(outsideMs);
      }
      expect(cold.startup_ms).toBeGreaterThan(20);
      expect(hot.startup_ms).toBeLessThan(cold.startup_ms);
      expect(cold).toMatchObject({ dep_install_ms: 0, phase_at_exit: "completed" });
    } finally {
      agent.process.kill("SIGTERM");
      await agent.exit;
      await rm(folder, { recursive: true });
    }
  },
);
