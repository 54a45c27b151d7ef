import { waitUntil } from "../../shared/testing/wait-until.ts";
import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { isLab } from "../../shared/testing/tier.ts";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import { engineHost } from "../engine/engine-host.ts";
import { connectEngine } from "../engine/engine.ts";
import { labels } from "../sandbox/labels.ts";
import { removeContainersOf } from "../sandbox/testing/raw-engine.ts";
import { type AgentProcess, startAgent } from "../testing/agent-process.ts";
import { type FakeApi, type Received, startFakeApi } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

const host = engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env);
const engine = connectEngine(host);

let api: FakeApi;
let folder: string;
let name: string;
let agents: AgentProcess[];
let way: Record<string, string>;

beforeEach(async () => {
  api = await startFakeApi();
  folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
  name = `test-${randomUUID()}`;
  agents = [];
});
afterEach(async () => {
  // One that is killed while it starts a container would leave it to nobody.
  for (const { process } of agents) process.kill("SIGTERM");
  await Promise.all(agents.map(({ exit }) => exit));
  await removeContainersOf(name);
  await api[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const soon = () => AbortSignal.timeout(60_000);
const containers = () => engine.list(labels.agentName, name, soon());

/** An agent against the real engine, polling the fake API. */
async function start(to: FakeApi = api): Promise<AgentProcess> {
  const agent = startAgent({
    AIRLOCK_API_URL: to.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: host,
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    AIRLOCK_DRAIN_GRACE_S: "0",
    ...way,
  });
  agents.push(agent);
  await agent.ready;
  return agent;
}

async function stop({ process, exit }: AgentProcess): Promise<void> {
  process.kill("SIGTERM");
  expect(await exit).toBe(0);
}

async function result(n = 1): Promise<ResultReport> {
  return (await api.request("/result", n)).json as ResultReport;
}

const stdout = ({ stdout_base64 }: ResultReport) => Buffer.from(stdout_base64, "base64").toString();
const forever = testJob.bind(null, {
  code: "import time\nprint('on', flush=True)\ntime.sleep(600)",
});

type Way = [string, Record<string, string>];
const inLab: Way[] = [
  ["with a warm pool of 2", { AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_WARM_POOL_SIZE: "2" }],
];
const first: Way[] = [
  ["without a warm pool", { AIRLOCK_CONTAINER_BACKEND: "engine", AIRLOCK_WARM_POOL_SIZE: "0" }],
  ["forking jobs", { AIRLOCK_CONTAINER_BACKEND: "zygote" }],
];

describe.each(isLab ? inLab : first)("%s", (_name, vars) => {
  beforeEach(() => void (way = vars));

  it("runs a job from its lease to its artifacts and result, and leaves nothing behind", async () => {
    const agent = await start();
    const code = `
import json, os, time
data = json.load(open("/input/data.json"))
print("hello", data["name"])
os.makedirs("/output/plots")
open("/output/plots/a b.bin", "wb").write(bytes(range(256)) * 1000)
time.sleep(1)  # what ends at once is not told as started
json.dump({"sum": sum(data["numbers"])}, open("/output/result.json", "w"))
`;
    const job = testJob({ code, input_json: '{"name":"Ada","numbers":[1,2,3.5]}' });
    api.offer(job);

    const report = await result();
    expect(stdout(report)).toBe("hello Ada\n");
    expect(report).toMatchObject({
      status: "succeeded",
      exit_code: 0,
      error: null,
      output_json: '{"sum": 6.5}',
      job_ref: expect.stringMatching(/^default@sha256:[0-9a-f]{64}$/) as string,
      timing: { dep_install_ms: 0, phase_at_exit: "completed" },
    });
    const { startup_ms, execution_ms, total_ms } = report.timing;
    expect(startup_ms).toBeGreaterThan(0);
    expect(total_ms).toBeGreaterThanOrEqual(startup_ms + execution_ms - 2);

    const put = api.received.find(({ method }) => method === "PUT") as Received;
    expect(put.path).toBe(`/leases/${job.lease_id}/artifacts/plots%2Fa%20b.bin`);
    const sha256 = createHash("sha256").update(put.bytes).digest("hex");
    expect(put.headers["x-airlock-sha256"]).toBe(sha256);
    const allBytes = Uint8Array.from({ length: 256 }, (_, n) => n);
    expect(put.bytes.equals(Buffer.alloc(256_000, allBytes))).toBe(true);
    expect((await api.request("/started")).json).toEqual({ job_ref: report.job_ref });

    await stop(agent);
    expect(await containers()).toEqual([]);
    expect(await readdir(join(folder, "spool"))).toEqual([]);
  });

  it("cancels running code and reports what it printed", async () => {
    await start();
    const job = forever();
    api.offer(job);
    await api.request("/logs");
    api.cancel.push(job.lease_id);
    api.wake();
    const report = await result();
    expect(report).toMatchObject({ status: "cancelled", error: { type: "cancelled" } });
    expect(stdout(report)).toBe("on\n");
  });

  it("fails a job whose image nobody has, and says so", async () => {
    await start();
    api.offer(testJob({ image: "localhost:9/no/such:1" }));
    expect(await result()).toMatchObject({
      status: "failed",
      error: {
        type: "docker_error",
        message: expect.stringContaining("Image localhost:9/no/such:1 is not on") as string,
        phase: "startup",
      },
    });
    expect(api.count("/release")).toBe(0);
  });

  describe("an agent that is killed", () => {
    it("leaves a container and files that its next start removes", async () => {
      const first = await start();
      api.offer(forever());
      await api.request("/logs");
      first.process.kill("SIGKILL");
      await first.exit;

      await using second = await startFakeApi();
      const agent = await start(second);
      const job = testJob();
      second.offer(job);
      await second.request("/result");
      await waitUntil("the dead agent's folder is gone", async () => {
        return (await readdir(join(folder, "spool"))).length === 1;
      });
      await stop(agent);
      expect(await containers()).toEqual([]);
      expect(await readdir(join(folder, "spool"))).toEqual([]);
    });
  });

  it("stops with running code: cancelled, reported, removed", async () => {
    const agent = await start();
    api.offer(forever());
    await api.request("/logs");
    await stop(agent);
    expect(await result()).toMatchObject({
      status: "cancelled",
      error: { message: "The agent was stopped while the code ran." },
    });
    expect(await containers()).toEqual([]);
  });
});
