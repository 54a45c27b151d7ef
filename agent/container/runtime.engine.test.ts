import { expect, it } from "vitest";
import { api, nextResult, printed, start, useWorld } from "../testing/agent-world.ts";
import { testJob } from "../testing/test-agent.ts";

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
