import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { getLogger } from "@logtape/logtape";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { JobType } from "../../shared/wire/job-types.ts";
import type { LeasedJob, PollRequest, ResultReport } from "../../shared/wire/leases.ts";
import {
  type AgentProcess,
  type EngineProxy,
  startAgent,
  startEngineProxy,
} from "../testing/agent-process.ts";
import {
  api,
  folder,
  host,
  name,
  nextResult,
  printed,
  start,
  useWorld,
} from "../testing/agent-world.ts";
import { openOn } from "../testing/backend.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import { type FakeApi, type Received, startFakeApi } from "../testing/fake-api.ts";
import {
  bridgeAddress,
  containersOf,
  deriveImage,
  removeContainersOf,
  removeImages,
} from "../testing/raw-engine.ts";
import { testJob } from "../testing/test-agent.ts";
import { createChangeSignal } from "../waiting.ts";
import { createLanguageFinder } from "./place.ts";

describe("job type", () => {
  /** What a job type says, seen from inside its containers. */

  let api: FakeApi;
  let agent: AgentProcess;
  let folder: string;
  let image: string;
  let done = 0;
  const name = `job-types-${process.pid}`;
  const images: string[] = [];

  beforeAll(async () => {
    ({ image } = await testEngine());
    api = await startFakeApi();
    folder = tempFolder();
    agent = startAgent({
      AIRLOCK_API_URL: api.url,
      AIRLOCK_AGENT_NAME: name,
      AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
      AIRLOCK_SPOOL_DIR: folder,
    });
    await agent.ready;
  });
  afterAll(async () => {
    agent.process.kill("SIGTERM");
    await agent.exit;
    await removeContainersOf(name);
    await removeImages(...images);
    await api[Symbol.asyncDispose]();
  });
  beforeEach(() => {
    done = api.count("/result");
  });

  /** Runs code on a job type that differs from the default in this. */
  async function run(
    jobType: Partial<JobType>,
    code: string,
    job: Partial<LeasedJob> = {},
  ): Promise<ResultReport & { out: string }> {
    const usual = testJob();
    api.offer({ ...usual, code, ...job, job_type: { ...usual.job_type, ...jobType } });
    const report = (await api.request("/result", ++done)).json as ResultReport;
    return { ...report, out: Buffer.from(report.stdout_base64, "base64").toString() };
  }

  /** The first of these control files that there is: cgroup v2, then v1. */
  const readLimit = (...paths: string[]) =>
    `print(next(open(p).read() for p in ${JSON.stringify(paths)} if __import__("os").path.exists(p)))`;

  test("memory_limit is the container's limit, and using more ends the code", async () => {
    const limit = readLimit(
      "/sys/fs/cgroup/memory.max",
      "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    );
    const { out } = await run({ memory_limit: "64m" }, limit);
    expect(out.trim()).toBe(String(64 * 1024 * 1024));
    const allocate = "x = []\nwhile True: x.append(bytearray(1_000_000))";
    expect(await run({ memory_limit: "64m" }, allocate)).toMatchObject({ status: "oom" });
  });

  test("cpu_limit is the container's share of CPUs", async () => {
    const quota = readLimit("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    const { out } = await run({ cpu_limit: 0.5 }, quota);
    expect(Number(out.trim().split(/\s/)[0])).toBe(50_000);
  });

  test("env is what the code finds in its environment", async () => {
    const env = { GREETING: "good day = 'sir'\n", EMPTY: "" };
    const { out } = await run(
      { env },
      "import os; print([os.environ[n] for n in ('GREETING', 'EMPTY')])",
    );
    expect(out).toBe(`["good day = 'sir'\\n", '']\n`);
  });

  test("preload is imported before the job arrives, and the code finds the same module", async () => {
    const probe = await deriveImage(
      image,
      `echo 'import os; early = not os.path.exists("/code/main.py")' > "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/preloaded.py"`,
    );
    const code =
      "import sys; print('preloaded' in sys.modules); import preloaded; print(preloaded.early)";
    images.push(probe);
    const ahead = await run({ preload: ["preloaded"] }, code, { image: probe });
    expect(ahead.out).toBe("True\nTrue\n");
    expect((await run({}, code, { image: probe })).out).toBe("False\nFalse\n");
  });

  test("image is what the job runs on, by reference or by digest", async () => {
    const marked = await deriveImage(image, "echo marked > /marker");
    images.push(marked);
    const report = await run({}, "print(open('/marker').read())", { image: marked });
    expect(report).toMatchObject({ out: "marked\n\n", job_ref: `default@${marked}` });
  });

  test("a job whose built image is gone fails, with what to do", async () => {
    const report = await run({}, "print(1)", { image: `sha256:${"0".repeat(64)}` });
    expect(report).toMatchObject({
      status: "failed",
      error: {
        type: "docker_error",
        message: expect.stringContaining("build the job type again") as string,
        phase: "startup",
      },
    });
  });

  test("network: none has only a loopback, bridge reaches the network", async () => {
    const address = await bridgeAddress();
    const server = createServer((_request, response) => response.end("hello")).listen(0, address);
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const code = `
import os, urllib.request
print(sorted(os.listdir("/sys/class/net")))
print(urllib.request.urlopen("http://${address}:${port}/", timeout=5).read())`;
    try {
      const none = await run({ network: "none" }, code);
      expect(none).toMatchObject({ status: "failed", error: { type: "network_error" } });
      expect(none.out).toBe("['lo']\n");
      expect((await run({ network: "bridge" }, code)).out).toBe("['eth0', 'lo']\nb'hello'\n");
    } finally {
      server.close();
    }
  });
});

test("an image is looked into once, when no job runs and not with what a tenant has set, for the languages that it has and their versions", async () => {
  const place = await testEngine();
  const labels = { agentId: randomUUID(), agentName: "sandbox-tests", leaseId: null };
  const spec = specWith({ image: place.image, labels });
  const request = { jobType: "default", tenant: "", spec, packages: null, imports: [], files: [] };
  const changes = createChangeSignal();
  let free = 1;
  let opened = 0;
  const finder = createLanguageFinder({
    sandboxes: {
      acquire: (_request, signal) => {
        opened += 1;
        return openOn(place, spec, signal);
      },
      giveBack: (sandbox) => sandbox.close(),
    },
    leases: { free: () => free, size: 2 },
    changes,
    log: getLogger(["airlock", "agent"]),
  });
  const ofTenant = { ...request, jobType: "acme.report", tenant: "acme" };
  finder.lookInto("base:1", ofTenant, "base:1");
  finder.lookInto("base:2", ofTenant, "base:2");
  finder.lookInto("base:1", request, "base:1");
  finder.lookInto("base:1", request, "base:1");
  const found = changes.waitUntil(() => "base:1" in finder.known());
  expect(opened).toBe(0);
  free = 2;
  changes.notify();
  await found;
  const first = finder.known()["base:1"];
  free = 1;
  for (let n = 0; n < 200; n += 1) {
    expect("base:1" in finder.known()).toBe(true);
    finder.lookInto(`other:${n}`, request, "base:1");
  }
  expect(finder.known()).toEqual({});
  await finder.close();
  expect(opened).toBe(1);
  expect(first).toEqual({
    bash: expect.stringMatching(/^5\.\d+\.\d+$/) as string,
    perl: expect.stringMatching(/^5\.\d+\.\d+$/) as string,
  });
});

describe("timing", () => {
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
});

describe("outage", () => {
  let proxy: EngineProxy;
  // Around the agents, which still need it when they end.
  afterEach(() => proxy[Symbol.asyncDispose]());
  useWorld();
  beforeEach(async () => {
    proxy = await startEngineProxy(host, join(folder, "engine.sock"));
  });
  const containers = () => containersOf(name);

  const isWell = ({ json }: Received): boolean =>
    (json["engine"] as PollRequest["engine"]).available;

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
});
