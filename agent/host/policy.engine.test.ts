import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { JobType } from "../../shared/wire/job-types.ts";
import type { BuildReport, LeasedJob, ResultReport } from "../../shared/wire/leases.ts";
import { engineHost } from "../engine/engine.ts";
import {
  type AgentProcess,
  type EngineProxy,
  startAgent,
  startEngineProxy,
} from "../testing/agent-process.ts";
import { api, nextResult, printed, start, useWorld } from "../testing/agent-world.ts";
import { testEngine } from "../testing/engine.ts";
import { type FakeApi, startFakeApi } from "../testing/fake-api.ts";
import { deriveImage, removeImages } from "../testing/raw-engine.ts";
import { testBuild, testJob } from "../testing/test-agent.ts";

describe("policy", () => {
  /** A guarded host: an agent with a policy, and an API that asks for what that forbids. */

  const host = engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env);

  let api: FakeApi;
  let agent: AgentProcess;
  let proxy: EngineProxy;
  let folder: string;
  let image: string;
  let hidden: string;

  beforeAll(async () => {
    ({ image } = await testEngine());
    hidden = await deriveImage(image, "true");
    api = await startFakeApi();
    folder = tempFolder();
    proxy = await startEngineProxy(host, join(folder, "engine.sock"));
    agent = startAgent({
      AIRLOCK_API_URL: api.url,
      AIRLOCK_AGENT_NAME: `guarded-${randomUUID()}`,
      AIRLOCK_DOCKER_HOST: proxy.host,
      AIRLOCK_SPOOL_DIR: folder,
      AIRLOCK_CONTAINER_BACKEND: "engine",
      AIRLOCK_WARM_POOL_SIZE: "0",
      AIRLOCK_AGENT_JOB_TYPES: "default",
      AIRLOCK_AGENT_IMAGES: `python:*,${image}`,
      AIRLOCK_AGENT_NETWORKS: "none",
      AIRLOCK_AGENT_RUNTIMES: "runc",
      AIRLOCK_AGENT_MAX_MEMORY: "512m",
      AIRLOCK_AGENT_MAX_CPUS: "1",
      AIRLOCK_AGENT_MAX_GPUS: "0",
      AIRLOCK_AGENT_MAX_TIMEOUT: "60",
      AIRLOCK_AGENT_MAX_STDOUT_BYTES: String(1024 ** 2),
      AIRLOCK_AGENT_MAX_ARTIFACT_BYTES: String(1024 ** 2),
      AIRLOCK_AGENT_BUILDS: "false",
    });
    await agent.ready;
  });

  afterAll(async () => {
    agent.process.kill("SIGTERM");
    await agent.exit;
    await proxy[Symbol.asyncDispose]();
    await removeImages(hidden);
    await api[Symbol.asyncDispose]();
  });

  async function run(
    job: Partial<LeasedJob>,
    jobType: Partial<JobType> = {},
  ): Promise<ResultReport> {
    const usual = testJob();
    api.offer({ ...usual, ...job, job_type: { ...usual.job_type, ...jobType } });
    return (await api.request(`/leases/${usual.lease_id}/result`)).json as ResultReport;
  }

  /** The requests that made or started something; waiting for an end is left out. */
  const made = () => proxy.requests.filter((request) => /^POST .*(?<!\/wait)$/.test(request));
  const refused = (what: string, why: string) => ({
    type: "config_error",
    message: `The agent's policy refuses the ${what}: ${why}.`,
    phase: "startup",
  });

  const cases: [string, Partial<LeasedJob>, Partial<JobType>][] = [
    ["agent_job_types leaves out science", {}, { name: "science" }],
    ["agent_images leaves out evil:1", { image: "evil:1" }, {}],
    ["agent_images leaves out python:1/evil", { image: "python:1/evil" }, {}],
    ["agent_networks leaves out bridge", {}, { network: "bridge" }],
    ["agent_max_memory is 512m, less than 513m", {}, { memory_limit: "513m" }],
    ["agent_max_cpus is 1, less than 1.01", {}, { cpu_limit: 1.01 }],
    ["agent_max_gpus is 0, less than 1", {}, { gpus: 1 }],
    ["agent_max_timeout is 60, less than 61", { timeout_s: 61 }, {}],
    [
      "agent_max_stdout_bytes is 1048576, less than 1048577",
      { caps: { stream_bytes: 1024 ** 2 + 1, artifact_bytes: 0 } },
      {},
    ],
    [
      "agent_max_artifact_bytes is 1048576, less than 1048577",
      { caps: { stream_bytes: 1024, artifact_bytes: 1024 ** 2 + 1 } },
      {},
    ],
  ];

  test.each(cases)(
    "a job is refused before anything is pulled or started: %s",
    async (why, job, jobType) => {
      const before = made();
      expect(await run(job, jobType)).toMatchObject({
        status: "failed",
        exit_code: null,
        error: refused("job", why),
        container_runtime: null,
      });
      expect(made()).toEqual(before);
    },
  );

  test("an image of the host that has no name is refused, by its id and by the start of its id", async () => {
    const [short, before] = [hidden.slice("sha256:".length, "sha256:".length + 12), made()];
    for (const reference of [hidden, short]) {
      const { error } = await run({ image: reference });
      expect(error).toEqual(refused("job", `agent_images leaves out ${hidden}`));
    }
    expect(made()).toEqual(before);
  });

  test("an accepted image runs, by reference and by id", async () => {
    for (const reference of ["python:3.13-slim", image]) {
      expect(await run({ image: reference })).toMatchObject({ status: "succeeded", error: null });
    }
    expect(made()).toContain("POST /containers/create");
  });

  test("a build is refused before anything is pulled or started", async () => {
    const [build, before] = [testBuild({ job_type: "default" }), made()];
    api.offerBuild(build);
    const report = (await api.request(`/builds/${build.lease_id}/result`)).json as BuildReport;
    expect(report).toEqual({ status: "failed", error: refused("build", "agent_builds is false") });
    expect(made()).toEqual(before);
  });
});

describe("runtime", () => {
  useWorld();

  /** What an agent of that configuration reports of a job on the real engine, and what it logs. */
  async function runWith(env: Record<string, string>) {
    const agent = await start(env);
    const code = `
print(open("/proc/version").read().startswith("Linux version 4.4.0"))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")])`;
    api.offer(testJob({ code }));
    const report = await nextResult();
    agent.process.kill("SIGTERM");
    const { status, error, container_runtime } = report;
    const told = { status, error, container_runtime, out: printed(report) };
    return { report: told, log: await agent.stderr };
  }

  const fine = { status: "succeeded", error: null };
  const absent = { AIRLOCK_CONTAINER_RUNTIME: "runsc-absent" };

  it("runs jobs on the engine's own runtime, filtered, and reports its name", async () => {
    const { report, log } = await runWith({});
    expect(report).toEqual({ ...fine, container_runtime: "runc", out: "False\n['2']\n" });
    expect(log).not.toContain("WRN");
  });

  it("runs jobs on gVisor where it is configured", async () => {
    const { report } = await runWith({ AIRLOCK_CONTAINER_RUNTIME: "runsc" });
    // gVisor filters its own calls to the host, not those of the code to itself.
    expect(report).toEqual({ ...fine, container_runtime: "runsc", out: "True\n['0']\n" });
  });

  it("falls back when permissive, and says so in the log and the report", async () => {
    const { report, log } = await runWith(absent);
    expect(report).toEqual({ ...fine, container_runtime: "runc", out: "False\n['2']\n" });
    expect(log).toContain("the engine lacks the runtime runsc-absent: its default is used instead");
  });

  it("fails the job when strict", async () => {
    const { report } = await runWith({ ...absent, AIRLOCK_SECURITY_MODE: "strict" });
    expect(report).toEqual({
      status: "failed",
      error: {
        type: "config_error",
        message:
          "security_mode strict requires the runtime runsc-absent, which this agent's engine lacks",
        phase: "startup",
      },
      container_runtime: null,
      out: "",
    });
  });

  it("enable_seccomp = false turns the filter off, with a warning at start", async () => {
    const { report, log } = await runWith({ AIRLOCK_ENABLE_SECCOMP: "false" });
    expect(report.out).toBe("False\n['0']\n");
    expect(log).toContain("enable_seccomp is false: the code may make any system call");
  });
});
