import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { AgentStatus, ResultReport } from "../../shared/wire/agent/lease.ts";
import { engineHost } from "../engine/engine-host.ts";
import { connectEngine } from "../engine/engine.ts";
import { labels } from "../sandbox/labels.ts";
import { type AgentProcess, startAgent } from "../testing/agent-process.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

const host = engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env);
const engine = connectEngine(host);
const soon = () => AbortSignal.timeout(60_000);

let name: string;
let folder: string;
beforeEach(async () => {
  name = `test-${randomUUID()}`;
  folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
});
afterEach(async () => {
  await Promise.all((await containers()).map((id) => engine.remove(id, soon())));
  await rm(folder, { recursive: true });
});

async function containers(): Promise<string[]> {
  return (await engine.list(labels.agentName, name, soon())).map(({ id }) => id);
}

describe("an agent", () => {
  let api: FakeApi;
  const agents: AgentProcess[] = [];
  beforeEach(async () => {
    api = await startFakeApi();
    const { job_type, image } = testJob();
    api.keepReady = [{ job_type, image }];
    api.imagesWanted = [image];
  });
  afterEach(async () => {
    // One that is killed while it starts a container would leave it to nobody.
    for (const { process } of agents) process.kill("SIGTERM");
    await Promise.all(agents.splice(0).map(({ exit }) => exit));
    await api[Symbol.asyncDispose]();
  });

  async function start(env: Record<string, string> = {}): Promise<AgentProcess> {
    const agent = startAgent({
      AIRLOCK_API_URL: api.url,
      AIRLOCK_AGENT_NAME: name,
      AIRLOCK_DOCKER_HOST: host,
      AIRLOCK_SPOOL_DIR: join(folder, "spool"),
      AIRLOCK_DRAIN_GRACE_S: "0",
      AIRLOCK_CONTAINER_BACKEND: "engine",
      AIRLOCK_WARM_POOL_SIZE: "2",
      ...env,
    });
    agents.push(agent);
    await agent.ready;
    return agent;
  }

  /** What the agent tells of its pool now. */
  async function pool() {
    const polls = api.count("/poll");
    api.wake();
    const status = (await api.request("/poll", polls + 1)).json as AgentStatus;
    return status.pool;
  }

  async function warm(): Promise<string[]> {
    await expect.poll(pool, { timeout: 60_000 }).toMatchObject([{ ready: 2, starting: 0 }]);
    return containers();
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
    await Promise.all(ready.map((id) => engine.remove(id, soon())));
    expect((await api.request("/result")).json).toMatchObject({
      error: { type: "internal_error" },
    });
  });

  it("replaces a container that dies while it waits; the next job does not notice", async () => {
    await start();
    const ready = await warm();
    await Promise.all(ready.map((id) => engine.remove(id, soon())));
    api.offer(testJob());
    const report = (await api.request("/result")).json as ResultReport;
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
    expect(await containers()).toEqual([]);
  });
});
