import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { afterEach, beforeEach } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import { engineHost } from "../engine/engine-host.ts";
import { rawEngine, removeContainersOf } from "../sandbox/testing/raw-engine.ts";
import { type AgentProcess, startAgent } from "./agent-process.ts";
import { type FakeApi, startFakeApi } from "./fake-api.ts";

export const host = engineHost(process.env["AIRLOCK_DOCKER_HOST"], process.env);

export let api: FakeApi;
export let name: string;
export let folder: string;
const agents: AgentProcess[] = [];
let results: number;

/** Gives each test of a file an API, a folder and a name of its own, and checks that no container is left. */
export function useWorld(): void {
  beforeEach(async () => {
    api = await startFakeApi();
    folder = tempFolder();
    name = `test-${randomUUID()}`;
    results = 0;
  });
  afterEach(async () => {
    // One that is killed while it starts a container would leave it to nobody.
    for (const { process } of agents) process.kill("SIGTERM");
    await Promise.all(agents.splice(0).map(({ exit }) => exit));
    const left = await leaseLabels();
    await removeContainersOf(name);
    await api[Symbol.asyncDispose]();
    if (left.length > 0) throw new Error(`left behind: ${left.join()}`);
  });
}

/** An agent on the real engine, which ends with the test. */
export async function start(env: Record<string, string> = {}, to = api): Promise<AgentProcess> {
  const agent = startAgent({
    AIRLOCK_API_URL: to.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: host,
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    AIRLOCK_DATA_DIR: join(folder, "data"),
    AIRLOCK_DRAIN_GRACE_S: "0",
    ...env,
  });
  agents.push(agent);
  await agent.ready;
  return agent;
}

export async function nextResult(): Promise<ResultReport> {
  results += 1;
  return (await api.request("/result", results)).json as ResultReport;
}

export const printed = ({ stdout_base64 }: ResultReport): string =>
  Buffer.from(stdout_base64, "base64").toString();

/** Labels of the leases whose containers there are. */
export async function leaseLabels(filter: object = {}): Promise<string[]> {
  const filters = { label: [`io.airlock.owner=${name}`], ...filter };
  const found = await rawEngine.listContainers({ all: true, filters });
  return found.map(({ Labels }) => Labels["io.airlock.lease"] ?? "");
}
