import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, onTestFailed, test } from "vitest";
import { connect } from "../setup/engine/connect.ts";
import { ensureEngine } from "../setup/engine/ensure-engine.ts";
import { readProcess } from "../setup/engine/processes.ts";
import { agentName, agentToken } from "../start/agent-token.ts";
import { removeContainersOf } from "../../agent/sandbox/testing/raw-engine.ts";
import { childrenOf } from "../testing/children-of.ts";
import { type StartProcess, startProcess } from "../testing/start-process.ts";
import { waitUntil } from "../../shared/testing/wait-until.ts";

let dataDir: string;
let running: StartProcess | undefined;

beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), "airlock-e2e-"));
});

afterEach(async () => {
  running?.signal("SIGTERM");
  await running?.exited;
  await removeContainersOf(agentName(agentToken(dataDir)));
  rmSync(dataDir, { recursive: true });
});

/** Starts the whole service on a free port and returns its URL. */
async function start(
  env: Record<string, string> = {},
): Promise<{ airlock: StartProcess; url: string }> {
  const own = { AIRLOCK_PORT: "0", AIRLOCK_DATA_DIR: dataDir };
  const airlock = startProcess(process.cwd(), { ...own, ...env });
  running = airlock;
  onTestFailed(() => void process.stderr.write(airlock.output()));
  await airlock.printed("ready in");
  const url = / (http:\S+)\/console,/.exec(airlock.output())?.[1] ?? "";
  return { airlock, url };
}

async function post<T>(url: string, body: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  return (await response.json()) as T;
}

async function get<T>(url: string): Promise<T> {
  return (await (await fetch(url)).json()) as T;
}

async function untilStatus(url: string, status: string): Promise<void> {
  await waitUntil(
    `${url} is ${status}`,
    async () => (await get<{ status: string }>(url)).status === status,
  );
}

/** The ids of the containers of this data folder's agent. */
async function containers(): Promise<string[]> {
  const { dockerHost } = await ensureEngine(process.env["AIRLOCK_DOCKER_HOST"]);
  const label = [`io.airlock.owner=${agentName(agentToken(dataDir))}`];
  const list = await connect(dockerHost).listContainers({ all: true, filters: { label } });
  return list.map((container) => container.Id);
}

test("serves jobs, and Ctrl-C leaves neither container nor process", async () => {
  const { airlock, url } = await start();
  const result = await post(`${url}/execute`, {
    code: "import json; print(sum(json.load(open('/input/data.json'))['n']))",
    input_data: { n: [1, 2, 3] },
  });
  expect(result).toMatchObject({ success: true, stdout: "6\n", exit_code: 0, error: null });
  expect(await get(`${url}/health`)).toMatchObject({ status: "healthy", docker_available: true });

  const children = childrenOf(airlock.pid);
  // The API, the agent, and tsx's compiler where its cache is cold.
  expect(children.length).toBeGreaterThanOrEqual(2);
  airlock.signal("SIGINT");
  expect(await airlock.exited).toBe(0);
  await waitUntil("its processes end", () => !children.some(readProcess));
  expect(await containers()).toEqual([]);
});

test("after kill -9 during a job it starts again, keeps its records and removes leftovers", async () => {
  const before = await start();
  const { job_id: done } = await post<{ job_id: string }>(`${before.url}/execute/async`, {
    code: "print('kept')",
  });
  await untilStatus(`${before.url}/jobs/${done}`, "succeeded");
  const { job_id: cut } = await post<{ job_id: string }>(`${before.url}/execute/async`, {
    code: "import time; time.sleep(600)",
    timeout: 900,
  });
  await untilStatus(`${before.url}/jobs/${cut}`, "running");
  await waitUntil("its container is there", async () => (await containers()).length > 0);
  const children = childrenOf(before.airlock.pid);
  for (const pid of [before.airlock.pid, ...children]) process.kill(pid, "SIGKILL");
  await before.airlock.exited;
  const left = await containers();
  expect(left).not.toEqual([]);

  const { airlock, url } = await start();
  expect(await get(`${url}/executions/${done}`)).toMatchObject({ stdout: "kept\n" });
  const now = await containers();
  expect(left.filter((id) => now.includes(id))).toEqual([]);
  airlock.signal("SIGINT");
  expect(await airlock.exited).toBe(0);
  expect(await containers()).toEqual([]);
});

test("builds the image of the default job type if it needs one", async () => {
  const prefix = `airlock-test-${randomUUID()}`;
  const env = { AIRLOCK_PRODUCTION_MODE: "true", AIRLOCK_IMAGE_PREFIX: prefix };
  const image = connect(
    (await ensureEngine(process.env["AIRLOCK_DOCKER_HOST"])).dockerHost,
  ).getImage(`${prefix}-default:latest`);
  for (let starts = 0; starts < 2; starts++) {
    const { airlock, url } = await start(env);
    expect(airlock.output()).toContain("building the image of the default job type");
    expect(await post(`${url}/execute`, { code: "print(1)" })).toMatchObject({ stdout: "1\n" });
    airlock.signal("SIGTERM");
    await airlock.exited;
    // Gone at the next start, which makes it anew.
    await image.remove();
  }
});
