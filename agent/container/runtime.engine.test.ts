import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import { engineHost } from "../engine/engine-host.ts";
import { removeContainersOf } from "../sandbox/testing/raw-engine.ts";
import { startAgent } from "../testing/agent-process.ts";
import { startFakeApi } from "../testing/fake-api.ts";
import { testJob } from "../testing/test-agent.ts";

const host = engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env);

/** What an agent of that configuration reports of a job on the real engine, and what it logs. */
async function runWith(env: Record<string, string>) {
  const name = `test-${randomUUID()}`;
  await using api = await startFakeApi();
  const folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
  const agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: host,
    AIRLOCK_SPOOL_DIR: folder,
    ...env,
  });
  try {
    const code = `
print(open("/proc/version").read().startswith("Linux version 4.4.0"))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")])`;
    api.offer(testJob({ code }));
    const report = (await api.request("/result")).json as ResultReport;
    agent.process.kill("SIGTERM");
    await agent.exit;
    const out = Buffer.from(report.stdout_base64, "base64").toString();
    const { status, error, container_runtime } = report;
    return { report: { status, error, container_runtime, out }, log: await agent.stderr };
  } finally {
    agent.process.kill("SIGKILL");
    await agent.exit;
    await removeContainersOf(name);
    await rm(folder, { recursive: true });
  }
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
