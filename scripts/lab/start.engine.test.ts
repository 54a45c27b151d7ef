import { beforeEach, expect, onTestFinished, test } from "vitest";
import { removeContainersOf } from "../../agent/testing/raw-engine.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { connect, ensureEngine, readProcess } from "../setup/engine.ts";
import { agentName, agentToken } from "../start/options.ts";
import { childrenOf } from "../testing/machine.ts";
import { postJson as post, startAirlock } from "../testing/start-process.ts";

let dataDir: string;

beforeEach(() => {
  dataDir = tempFolder();
  onTestFinished(() => removeContainersOf(agentName(agentToken(dataDir))));
});

const start = () => startAirlock({ AIRLOCK_DATA_DIR: dataDir });

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
  // The API and the agent.
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
