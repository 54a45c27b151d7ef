import { beforeEach, expect, it } from "vitest";
import type { AgentStatus } from "../../shared/wire/agent/lease.ts";
import { containersOf, rawEngine } from "../sandbox/testing/raw-engine.ts";
import type { AgentProcess } from "../testing/agent-process.ts";
import { api, name, nextResult, start as startAgent, useWorld } from "../testing/agent-world.ts";
import { testJob } from "../testing/test-agent.ts";

useWorld();
beforeEach(() => {
  const { job_type, image } = testJob();
  api.keepReady = [{ job_type, image }];
  api.imagesWanted = [image];
});

const start = (): Promise<AgentProcess> =>
  startAgent({ AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_WARM_POOL_SIZE: "2" });
const removeAll = (ids: string[]) =>
  Promise.all(ids.map((id) => rawEngine.getContainer(id).remove({ force: true, v: true })));

/** What the agent tells of its pool now. */
async function pool() {
  const polls = api.count("/poll");
  api.wake();
  const status = (await api.request("/poll", polls + 1)).json as AgentStatus;
  return status.pool;
}

async function warm(): Promise<string[]> {
  await expect.poll(pool, { timeout: 60_000 }).toMatchObject([{ ready: 2, starting: 0 }]);
  return containersOf(name);
}

it("has containers ready before its first job, which gets one of them", async () => {
  await start();
  const ready = await warm();
  expect(ready).toHaveLength(2);
  api.offer(testJob({ code: "import time\nprint('on', flush=True)\ntime.sleep(600)" }));
  await api.request("/logs");
  await expect
    .poll(pool, { timeout: 60_000 })
    .toMatchObject([{ job_type: "default", runtime: null, ready: 2, in_use: 1 }]);
  // Without those it goes on only where it has started one of its own.
  await removeAll(ready);
  expect(await nextResult()).toMatchObject({ error: { type: "internal_error" } });
});

it("replaces a container that dies while it waits; the next job does not notice", async () => {
  await start();
  const ready = await warm();
  await removeAll(ready);
  api.offer(testJob());
  const report = await nextResult();
  expect(report.status).toBe("succeeded");
  expect(api.count("/release")).toBe(0);
  const fresh = await warm();
  expect(fresh.filter((id) => ready.includes(id))).toEqual([]);
});

it("leaves none of them when it stops", async () => {
  const agent = await start();
  await warm();
  agent.process.kill("SIGTERM");
  expect(await agent.exit).toBe(0);
  expect(await containersOf(name)).toEqual([]);
});
