import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { tempFolder } from "../shared/testing/test-file.ts";
import { type AgentProcess, startAgent } from "./testing/agent-process.ts";
import { type FakeApi, startFakeApi } from "./testing/fake-api.ts";

let api: FakeApi;
let folder: string;
const agents: AgentProcess[] = [];

beforeEach(async () => {
  api = await startFakeApi();
  folder = tempFolder();
});
afterEach(async () => {
  for (const agent of agents.splice(0)) agent.process.kill("SIGKILL");
  await api[Symbol.asyncDispose]();
});

/** Starts the agent against the fake API, without an engine. */
function start(env: Record<string, string> = {}): AgentProcess {
  const agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_DOCKER_HOST: `unix://${join(folder, "no-engine.sock")}`,
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    ...env,
  });
  agents.push(agent);
  return agent;
}

describe("a fault in the configuration", () => {
  it.each([
    [{ AIRLOCK_AGENT_TOKEN: "" }, /^airlock agent: AIRLOCK_AGENT_TOKEN is not set: .*\n$/],
    [{ AIRLOCK_MAX_WORKERS: "many" }, /^airlock agent: max_workers = "many": .*\n$/],
  ])("%o ends it with one line", async (env, message) => {
    const { exit, stderr } = start(env);
    expect(await exit).toBe(1);
    expect(await stderr).toMatch(message);
  });
});

it("ends with its own exit code if a restart may help", async () => {
  await writeFile(join(folder, "file"), "");
  const { exit, stderr } = start({ AIRLOCK_SPOOL_DIR: join(folder, "file") });
  expect(await exit).toBe(70);
  expect(await stderr).toMatch(/^airlock agent: .*file.*\n$/);
});

it("ends with code 2 and the reason if its token is refused", async () => {
  const body = { title: "no", status: 401, detail: "unknown token", correlation_id: "c" };
  api.answer("/poll", { status: 401, body });
  const { exit, stderr } = start();
  expect(await exit).toBe(2);
  expect(await stderr).toMatch(
    /\nairlock agent: POST \/poll answered 401: unknown token; AIRLOCK_AGENT_TOKEN must be .*\n$/,
  );
  expect(await readdir(join(folder, "spool"))).toEqual([]);
});

describe("without an engine", () => {
  it("reports it, takes no work, and stops cleanly on SIGTERM", async () => {
    const { process, exit, stderr, ready } = start();
    const engine = { available: false, version: null, runtimes: [] };
    expect(await ready).toMatchObject({ type: "ready", engine });
    expect((await api.request("/poll", 2)).json).toMatchObject({ free_slots: 0, engine });
    process.kill("SIGTERM");
    expect(await exit).toBe(0);
    expect(await stderr).toMatch(
      /ERROR airlock\.agent .*ENOENT.*; start the engine, or .* docker_host/,
    );
    expect(api.received.at(-1)?.path).toBe("/leave");
    expect(await readdir(join(folder, "spool"))).toEqual([]);
  });

  it("stops when its parent is gone", async () => {
    const { process, exit, ready } = start();
    await ready;
    process.disconnect();
    expect(await exit).toBe(0);
  });

  it("ends at once on a second signal", async () => {
    api.answer("/leave", "silence");
    const { process, exit, ready } = start();
    await ready;
    process.kill("SIGTERM");
    await api.request("/leave");
    process.kill("SIGINT");
    expect(await exit).toBe(130);
  });
});
