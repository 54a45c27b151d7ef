import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { programArgs } from "../../../shared/testing/program.ts";
import type { ExecutionRecord } from "../../typescript/src/index.ts";
import { startCommandService } from "./testing/command-service.ts";
import { startHoldingProxy } from "./testing/holding-proxy.ts";
import { commandFor } from "./testing/run-command.ts";

const { service, folder, airlock, script } = await startCommandService();
const long = script("long.py", "import time; print('begun', flush=True); time.sleep(600)");

/** The newest job. */
async function newest(): Promise<ExecutionRecord> {
  const { stdout } = await airlock.run(["--json", "ps", "-n", "1"]);
  return (JSON.parse(stdout) as ExecutionRecord[])[0]!;
}

test.each([
  ["Ctrl-C", "SIGINT", 130],
  ["SIGTERM", "SIGTERM", 143],
  ["the end of the terminal", "SIGHUP", 130],
] as const)(
  "%s cancels the job of run, keeps its output, and exits as it asks",
  async (_, signal, exit) => {
    const { child, ended } = airlock.start(["run", long]);
    await once(child.stdout, "data");
    child.kill(signal);
    const { code, stdout } = await ended;
    expect({ code, stdout }).toEqual({ code: exit, stdout: "begun\n" });
    expect(await newest()).toMatchObject({ status: "cancelled" });
  },
);

test("a second Ctrl-C leaves run at once", async () => {
  await using slow = await startHoldingProxy(service.url, /\/(events|cancel)$/);
  const { child, ended } = commandFor(slow.url).start(["run", long]);
  await slow.held;
  child.kill("SIGINT");
  await once(child.stderr, "data");
  while (child.exitCode === null) {
    child.kill("SIGINT");
    await sleep(200);
  }
  expect((await ended).code).toBe(130);
});

test("Ctrl-C while run submits cancels the job that the request has made", async () => {
  await using slow = await startHoldingProxy(service.url, /^\/execute\/async/);
  const { child, ended } = commandFor(slow.url).start(["run", "-d", long]);
  await slow.held;
  child.kill("SIGINT");
  await once(child.stderr, "data");
  slow.release();
  expect(await ended).toMatchObject({ code: 130, stdout: "" });
  const { execution_id } = await newest();
  await airlock.run(["logs", "-f", execution_id]);
  expect(await newest()).toMatchObject({ status: "cancelled" });
});

test("Ctrl-C while the service does not answer a submission says that there may be a job", async () => {
  await using slow = await startHoldingProxy(service.url, /^\/execute\/async/);
  const { child, ended } = commandFor(slow.url).start(["run", long]);
  await slow.held;
  child.kill("SIGTERM");
  const { code, stderr } = await ended;
  expect(code).toBe(143);
  expect(stderr).toContain("may have made a job (airlock ps)");
  await airlock.run(["cancel", (await newest()).execution_id]);
});

test("Ctrl-C only leaves logs -f: the job goes on", async () => {
  const id = (await airlock.run(["run", "-d", long])).stdout.trim();
  const { child, ended } = airlock.start(["logs", "-f", id]);
  await once(child.stdout, "data");
  child.kill("SIGINT");
  expect((await ended).code).toBe(130);
  expect(await newest()).toMatchObject({ status: "running" });
  const { code, stdout } = await airlock.run(["cancel", id]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: `${id} is being cancelled\n` });
});

test("when nobody reads its output, run cancels the job and logs -f just ends", async () => {
  const ticks = script(
    "ticks.py",
    "import time\nwhile True: print('x' * 50_000, flush=True); time.sleep(0.1)",
  );
  const cut = async (...args: string[]) => {
    const command = [process.execPath, ...programArgs("clients/cli/main.ts"), ...args];
    const env = { ...process.env, AIRLOCK_URL: service.url, XDG_CONFIG_HOME: folder };
    const pipe = '"$@" | head -c 1; exit ${PIPESTATUS[0]}';
    const child = spawn("bash", ["-c", pipe, "bash", ...command], { env });
    const [code] = (await once(child, "exit")) as [number];
    return code;
  };
  const id = (await airlock.run(["run", "-d", ticks])).stdout.trim();
  expect(await cut("logs", "-f", id)).toBe(0);
  expect(await newest()).toMatchObject({ status: "running" });
  await airlock.run(["cancel", id]);
  expect(await cut("run", ticks)).toBe(130);
  expect(await newest()).toMatchObject({ status: "cancelled" });
});
