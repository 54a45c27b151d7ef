import { once } from "node:events";
import { rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { waitUntil } from "../../shared/testing/test-file.ts";
import { readProcess } from "../setup/engine.ts";
import {
  type StartProcess,
  startProcess,
  type StubProject,
  stubProject,
} from "../testing/start-process.ts";

let project: StubProject;
let running: StartProcess | undefined;

beforeEach(() => {
  project = stubProject();
});

afterEach(async () => {
  running?.signal("SIGKILL");
  await running?.exited;
  rmSync(project.dir, { recursive: true });
});

function start(env: Record<string, string> = {}): StartProcess {
  running = startProcess(project.dir, { AIRLOCK_PORT: "0", ...env });
  return running;
}

async function untilGone(pid: number): Promise<void> {
  await waitUntil(`process ${pid} ends`, () => !readProcess(pid));
}

test("serves until Ctrl-C, then stops the agent before the API", async () => {
  const airlock = start();
  await airlock.printed("curl -s http://127.0.0.1:");
  expect(airlock.output()).toMatch(/self-check: Python 3 in a container answered \{"sum":42\}/);
  airlock.signal("SIGINT");
  expect(await airlock.exited).toBe(0);
  expect(project.notes().slice(-3)).toEqual(["agent-told-1", "agent-stops", "api-stops"]);
});

test("one Ctrl-C that arrives twice lets the agent drain", async () => {
  const airlock = start({ STUB_DRAIN_MS: "300" });
  await airlock.printed("ready in");
  airlock.signal("SIGINT");
  await airlock.printed("stopping");
  airlock.signal("SIGINT");
  expect(await airlock.exited).toBe(0);
  expect(project.notes()).not.toContain("agent-told-2");
});

test("a second Ctrl-C ends it at once", async () => {
  const airlock = start({ STUB_DRAIN_MS: "600000" });
  await airlock.printed("ready in");
  airlock.signal("SIGINT");
  await airlock.printed("stopping");
  await sleep(1100);
  airlock.signal("SIGINT");
  expect(await airlock.exited).toBe(0);
  expect(project.notes()).toContain("agent-told-2");
});

test("an agent that dies is started again", async () => {
  const airlock = start();
  await airlock.printed("ready in");
  process.kill(project.pidOf("agent-ready"), "SIGKILL");
  await airlock.printed("starting it again in 1 s");
  await waitUntil(
    "the agent is ready again",
    () => project.notes().filter((note) => note === "agent-ready").length >= 2,
  );
  airlock.signal("SIGTERM");
  expect(await airlock.exited).toBe(0);
  expect(project.notes().slice(-2)).toEqual(["agent-stops", "api-stops"]);
});

test("an API that dies ends everything", async () => {
  const airlock = start();
  await airlock.printed("ready in");
  process.kill(project.pidOf("api-ready"), "SIGKILL");
  expect(await airlock.exited).toBe(1);
  expect(airlock.output()).toContain("the API ended by itself");
  expect(project.notes().at(-1)).toBe("agent-stops");
});

test("an API that does not start is the reason given, with its exit code", async () => {
  const airlock = start({ STUB_API_FAILS: "1" });
  expect(await airlock.exited).toBe(7);
  expect(airlock.output()).toContain("the API did not start (exit code 7)");
});

test("after kill -9 no process is left, and it starts again", async () => {
  const killed = start();
  await killed.printed("ready in");
  killed.signal("SIGKILL");
  await killed.exited;
  await untilGone(project.pidOf("api-ready"));
  await untilGone(project.pidOf("agent-ready"));

  const airlock = start();
  await airlock.printed("ready in");
  airlock.signal("SIGINT");
  expect(await airlock.exited).toBe(0);
});

test("a taken port is a clear error before anything starts", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const airlock = start({ AIRLOCK_PORT: String(port) });
  expect(await airlock.exited).toBe(1);
  expect(airlock.output()).toContain(`port ${port} on 127.0.0.1 is taken`);
  expect(project.notes()).toEqual([""]);
  server.close();
});

test("a wrong key is a clear error", async () => {
  const airlock = start({ AIRLOCK_MAX_WORKERS: "many" });
  expect(await airlock.exited).toBe(1);
  expect(airlock.output()).toMatch(/^airlock: the configuration is wrong: max_workers = "many"/);
});
