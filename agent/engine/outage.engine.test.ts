import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { PollRequest } from "../../shared/wire/agent/lease.ts";
import { containersOf } from "../sandbox/testing/raw-engine.ts";
import { api, folder, host, name, nextResult, start, useWorld } from "../testing/agent-world.ts";
import { type EngineProxy, startEngineProxy } from "../testing/engine-proxy.ts";
import type { Received } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

let proxy: EngineProxy;
// Around the agents, which still need it when they end.
afterEach(() => proxy[Symbol.asyncDispose]());
useWorld();
beforeEach(async () => {
  proxy = await startEngineProxy(host, join(folder, "engine.sock"));
});
const containers = () => containersOf(name);

const isWell = ({ json }: Received): boolean => (json["engine"] as PollRequest["engine"]).available;

const outage =
  "an engine that goes away hands the run back, stops leasing, and is used and cleaned again";

it.each([0, 1, 2])(`${outage}, with a warm pool of %d`, async (poolSize) => {
  await start({
    AIRLOCK_DOCKER_HOST: proxy.host,
    AIRLOCK_CONTAINER_BACKEND: "engine",
    AIRLOCK_WARM_POOL_SIZE: String(poolSize),
  });
  api.offer(testJob({ code: "import time\nprint('on', flush=True)\ntime.sleep(600)" }));
  await api.request("/logs");
  await expect.poll(containers, { timeout: 60_000 }).toHaveLength(1 + poolSize);
  const before = await containers();
  const polls = api.count("/poll");
  await proxy.cut();
  expect((await api.request("/release")).json).toMatchObject({
    error: { type: "internal_error", phase: "execution" },
  });
  // One that the pool has news for may come before it.
  let down = await api.request("/poll", polls + 1);
  for (let n = polls + 2; isWell(down); n++) down = await api.request("/poll", n);
  expect(down.json).toMatchObject({ free_slots: 0, engine: { available: false } });

  await proxy.restore();
  await down.hungUp;
  api.offer(testJob());
  expect(await nextResult()).toMatchObject({ status: "succeeded" });
  const left = async () => (await containers()).filter((id) => before.includes(id));
  await expect.poll(left, { timeout: 60_000 }).toEqual([]);
  // A start that failed meanwhile has the pool rest before the next.
  await expect.poll(containers, { timeout: 60_000 }).toHaveLength(poolSize);
});
