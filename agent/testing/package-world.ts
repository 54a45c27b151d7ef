import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, vi } from "vitest";
import type { LeasedJob, ResultReport } from "../../shared/wire/agent/lease.ts";
import {
  type IndexOptions,
  type PackageIndex,
  startIndex,
} from "../sandbox/testing/package-index.ts";
import { rawEngine, removeContainersOf } from "../sandbox/testing/raw-engine.ts";
import type { Wheel } from "../sandbox/testing/wheel.ts";
import { type AgentProcess, startAgent } from "./agent-process.ts";
import { type FakeApi, startFakeApi } from "./fake-api.ts";
import { testJob } from "./test-agent.ts";

export const MiB = 1024 ** 2;
export const probe = { name: "airlock_probe", version: "1.0", source: "n = 42\n" };
export const code = "import airlock_probe; print(airlock_probe.n)";
export const wheel = (letter: string, mebibytes: number): Wheel => ({
  ...probe,
  name: `airlock_${letter}`,
  files: { [`${letter}.txt`]: letter.repeat(mebibytes * MiB) },
});

export let api: FakeApi;
export let name: string;
export let folder: string;
let agents: AgentProcess[];
let indexes: PackageIndex[];
let results: number;
/** Gives each test of a file an API, a folder and a name of its own, and checks that no container is left. */
export function useWorld(): void {
  beforeEach(async () => {
    api = await startFakeApi();
    folder = await mkdtemp(join(tmpdir(), "airlock-test-"));
    name = `test-${randomUUID()}`;
    agents = [];
    indexes = [];
    results = 0;
  });
  afterEach(async () => {
    for (const { process } of agents) process.kill("SIGTERM");
    await Promise.all(agents.map(({ exit }) => exit));
    for (const index of indexes) index.close();
    const left = await leaseLabels();
    await removeContainersOf(name);
    await api[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
    if (left.length > 0) throw new Error(`left behind: ${left.join()}`);
  });
}

export async function indexOf(options: Partial<IndexOptions> = {}): Promise<PackageIndex> {
  const index = await startIndex({ address: "127.0.0.1", wheels: [probe], ...options });
  indexes.push(index);
  return index;
}

/** An agent that forks its jobs and lets them bring packages, from this index where there is one. */
export async function start(
  index: PackageIndex | undefined,
  env: Record<string, string> = {},
): Promise<AgentProcess> {
  const agent = startAgent({
    AIRLOCK_API_URL: api.url,
    AIRLOCK_AGENT_NAME: name,
    AIRLOCK_DOCKER_HOST: process.env["AIRLOCK_DOCKER_HOST"],
    AIRLOCK_SPOOL_DIR: join(folder, "spool"),
    AIRLOCK_DATA_DIR: join(folder, "data"),
    AIRLOCK_WARM_POOL_SIZE: "0",
    AIRLOCK_CONTAINER_BACKEND: "zygote",
    AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "true",
    AIRLOCK_PIP_INDEX_URL: index?.url,
    ...env,
  });
  agents.push(agent);
  await agent.ready;
  return agent;
}

export const cached = { AIRLOCK_ENABLE_RUNTIME_DEPENDENCY_CACHE: "true" };

export function offer(job: Partial<LeasedJob> = {}): LeasedJob {
  const offered = testJob({ code, requirements: ["airlock-probe"], ...job });
  api.offer(offered);
  return offered;
}
export async function nextResult(): Promise<ResultReport> {
  results += 1;
  return (await api.request("/result", results)).json as ResultReport;
}
export async function run(job: Partial<LeasedJob> = {}): Promise<ResultReport> {
  offer(job);
  return nextResult();
}
/** What ended, and what it printed. */
export const told = ({ status, stdout_base64, error }: ResultReport) => [
  status,
  Buffer.from(stdout_base64, "base64").toString() || error?.message,
];

async function leaseLabels(filter: object = {}): Promise<string[]> {
  const filters = { label: [`io.airlock.owner=${name}`], ...filter };
  const found = await rawEngine.listContainers({ all: true, filters });
  return found.map(({ Labels }) => Labels["io.airlock.lease"] ?? "");
}

/** Waits until an agent's container with a label of this kind runs. */
export async function untilRunning(kind: string): Promise<void> {
  await vi.waitFor(
    async () => {
      expect(await leaseLabels({ status: ["running"] })).toContainEqual(
        expect.stringContaining(kind),
      );
    },
    { timeout: 240_000, interval: 10 },
  );
}
