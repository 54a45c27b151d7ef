import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import { engineHost } from "../engine/engine-host.ts";
import { type AgentProcess, startAgent } from "../testing/agent-process.ts";
import { type EngineProxy, startEngineProxy } from "../testing/engine-proxy.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { forgetPeak, peakBytes, residentBytes } from "../testing/process-use.ts";
import { testJob } from "../testing/test-agent.ts";

const host = engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env);
const mib = 1024 * 1024;
const caps = { stream_bytes: mib, artifact_bytes: mib };

const flood = `
import os
block = b"x" * 65536
for n in range(2 * 1024**3 // len(block)):
    os.write(1, block)
os.write(1, b"the end")
`;

const bigFile = `
with open("/output/big.bin", "wb") as file:
    for n in range(100):
        file.write(bytes([n]) * 1024 * 1024)
`;

interface World extends AsyncDisposable {
  readonly api: FakeApi;
  readonly proxy: EngineProxy;
  readonly agent: AgentProcess;
}

async function startWorld(): Promise<World> {
  const folder = tempFolder();
  const api = await startFakeApi();
  const proxy = await startEngineProxy(host, join(folder, "engine.sock"));
  const agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_NAME: `test-${randomUUID()}`,
    AIRLOCK_DOCKER_HOST: proxy.host,
    AIRLOCK_SPOOL_DIR: folder,
  });
  await agent.ready;
  return {
    api,
    proxy,
    agent,
    [Symbol.asyncDispose]: async () => {
      agent.process.kill("SIGTERM");
      await agent.exit;
      await proxy[Symbol.asyncDispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

it("no more than the cap of 2 GiB on stdout leaves the container, and the agent stays small", async () => {
  await using world = await startWorld();
  const { api, proxy, agent } = world;
  const pid = agent.process.pid!;
  const before = residentBytes(pid);
  forgetPeak(pid);
  api.offer(testJob({ code: flood, caps, timeout_s: 80 }));
  const report = (await api.request("/result")).json as ResultReport;
  expect(report).toMatchObject({ status: "succeeded", stdout_truncated: true });
  const stdout = Buffer.from(report.stdout_base64, "base64");
  expect(stdout.length).toBeGreaterThanOrEqual(mib);
  expect(stdout.subarray(-7).toString()).toBe("the end");
  expect(proxy.bytesOut()).toBeLessThan(2 * mib);
  expect(peakBytes(pid) - before).toBeLessThan(60 * mib);
});

it("an agent that does not read slows the container down and loses nothing", async () => {
  await using world = await startWorld();
  const { api, proxy, agent } = world;
  const artifactCaps = { ...caps, artifact_bytes: 100 * mib };
  api.offer(testJob({ code: bigFile, caps: artifactCaps, timeout_s: 80 }));
  while (proxy.bytesOut() < mib) await sleep(1);
  agent.process.kill("SIGSTOP");
  // What is on its way fills the sockets' buffers, and then nothing moves.
  let before = -1;
  for (let now = proxy.bytesOut(); now !== before; now = proxy.bytesOut()) {
    before = now;
    await sleep(300);
  }
  expect(proxy.bytesOut()).toBeLessThan(90 * mib);
  agent.process.kill("SIGCONT");
  expect((await api.request("/result")).json).toMatchObject({ status: "succeeded", error: null });
  const { bytes } = await api.request("/big.bin");
  expect(bytes.length).toBe(100 * mib);
  expect([...Array(100).keys()].map((n) => bytes[n * mib + 7])).toEqual([...Array(100).keys()]);
});
