import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { PollRequest } from "../../shared/wire/agent/lease.ts";
import { engineHost } from "./engine-host.ts";
import { connectEngine } from "./engine.ts";
import { labels } from "../sandbox/labels.ts";
import { type AgentProcess, startAgent } from "../testing/agent-process.ts";
import { type EngineProxy, startEngineProxy } from "../testing/engine-proxy.ts";
import { type FakeApi, type Received, startFakeApi } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

const host = engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env);
const engine = connectEngine(host);
const name = `test-${randomUUID()}`;
const containers = async () =>
  (await engine.list(labels.agentName, name, AbortSignal.timeout(60_000))).map(({ id }) => id);

let api: FakeApi;
let folder: string;
let proxy: EngineProxy;
let agent: AgentProcess;

beforeEach(async () => {
  api = await startFakeApi();
  folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
  proxy = await startEngineProxy(host, join(folder, "engine.sock"));
});
afterEach(async () => {
  agent.process.kill("SIGTERM");
  await agent.exit;
  await proxy[Symbol.asyncDispose]();
  await api[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

async function start(poolSize: number): Promise<void> {
  agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: proxy.host,
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    AIRLOCK_CONTAINER_BACKEND: "engine",
    AIRLOCK_WARM_POOL_SIZE: String(poolSize),
  });
  await agent.ready;
}

const isWell = ({ json }: Received): boolean => (json["engine"] as PollRequest["engine"]).available;

const outage =
  "an engine that goes away hands the run back, stops leasing, and is used and cleaned again";

it.each([0, 1, 2])(`${outage}, with a warm pool of %d`, async (poolSize) => {
  await start(poolSize);
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
  expect((await api.request("/result")).json).toMatchObject({ status: "succeeded" });
  const left = async () => (await containers()).filter((id) => before.includes(id));
  await expect.poll(left, { timeout: 60_000 }).toEqual([]);
  // A start that failed meanwhile has the pool rest before the next.
  await expect.poll(containers, { timeout: 60_000 }).toHaveLength(poolSize);
});
