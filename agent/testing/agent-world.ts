import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { afterEach, beforeEach, expect, vi } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { LeasedJob, ResultReport } from "../../shared/wire/leases.ts";
import { motherSpec } from "../backends/forks.ts";
import { type ImageRequest, makeImage } from "../builds/build.ts";
import { type Engine, engineHost } from "../engine/engine.ts";
import { buildLimits } from "../host/policy.ts";
import { createPackageProxy, type PipConfig, readPackageSource } from "../packages/proxy.ts";
import { labels } from "../sandbox/sandbox.ts";
import { type AgentProcess, startAgent } from "./agent-process.ts";
import { testEngine } from "./engine.ts";
import { type FakeApi, startFakeApi } from "./fake-api.ts";
import { pipConfig } from "./fakes.ts";
import {
  type IndexOptions,
  type PackageIndex,
  startIndex,
  type Wheel,
  writeWheels,
} from "./package-index.ts";
import { rawEngine, removeContainersOf, removeImages, shell } from "./raw-engine.ts";
import { testJob } from "./test-agent.ts";

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
async function leaseLabels(filter: object = {}): Promise<string[]> {
  const filters = { label: [`io.airlock.owner=${name}`], ...filter };
  const found = await rawEngine.listContainers({ all: true, filters });
  return found.map(({ Labels }) => Labels["io.airlock.lease"] ?? "");
}

export const MiB = 1024 ** 2;
export const probe = { name: "airlock_probe", version: "1.0", source: "n = 42\n" };
export const code = "import airlock_probe; print(airlock_probe.n)";
export const wheel = (letter: string, mebibytes: number): Wheel => ({
  ...probe,
  name: `airlock_${letter}`,
  files: { [`${letter}.txt`]: letter.repeat(mebibytes * MiB) },
});

export const indexOf = (options: Partial<IndexOptions> = {}): Promise<PackageIndex> =>
  startIndex({ wheels: [probe], ...options });

/** An agent that forks its jobs and lets them bring packages, from this index where there is one. */
export const startForking = (
  index: PackageIndex | undefined,
  env: Record<string, string> = {},
): Promise<AgentProcess> =>
  start({
    AIRLOCK_WARM_POOL_SIZE: "0",
    AIRLOCK_CONTAINER_BACKEND: "zygote",
    AIRLOCK_ALLOW_RUNTIME_REQUIREMENTS: "true",
    ...(index && { AIRLOCK_PIP_INDEX_URL: index.url }),
    ...env,
  });

export const cached = { AIRLOCK_ENABLE_RUNTIME_DEPENDENCY_CACHE: "true" };

export function offer(job: Partial<LeasedJob> = {}): LeasedJob {
  const offered = testJob({ code, requirements: ["airlock-probe"], ...job });
  api.offer(offered);
  return offered;
}
export async function run(job: Partial<LeasedJob> = {}): Promise<ResultReport> {
  offer(job);
  return nextResult();
}
/** What ended, and what it printed. */
export const told = (report: ResultReport) => [
  report.status,
  printed(report) || report.error?.message,
];

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

/** What the volume of an agent's packages holds: the names of bundles, and half-written ones. */
export async function bundlesInVolume(agentName: string): Promise<string[]> {
  const { image } = await testEngine();
  const { bundles } = motherSpec({ id: "", name: agentName } as never, 1, null, 0);
  const listed = await shell(image, "ls /bundles", `${bundles}:/bundles:ro`);
  return listed.split(/\s+/).filter(Boolean);
}

const builtPackage = { name: "airlock_probe", version: "1.2.0", source: "answer = 42\n" };
/** Code that prints 42 if the package is there. */
export const printAnswer = "import airlock_probe; print(airlock_probe.answer)";

const limits = buildLimits({ agent_builds: true, max_built_bytes: 20 * 1024 ** 3 });

export const soon = (): AbortSignal => AbortSignal.timeout(120_000);

/** Steps that install packages of Python. */
export const pipSteps = (...packages: string[]) => [{ kind: "pip" as const, packages }];

interface BuildOptions {
  readonly engine?: Engine;
  readonly onLog?: () => void;
  readonly signal?: AbortSignal;
}

/** A real engine, and a package to build images with: airlock_probe, as a wheel in `folder`. */
export async function openBuildWorld() {
  const { engine: real, image } = await testEngine();
  const engine: Engine = {
    ...real,
    commit: async (...asked) => {
      const id = await real.commit(...asked);
      made.push(id);
      return id;
    },
  };
  const folder = tempFolder();
  writeWheels(folder, builtPackage);
  const repository = `airlock-test-${randomUUID()}`;
  const owner = { agentId: randomUUID(), agentName: repository, leaseId: randomUUID() };
  /** Images to remove at the end. */
  const made: string[] = [];

  /** The request of a build that installs airlock_probe. */
  async function requestFor(
    pip: Partial<PipConfig>,
    changes: Partial<ImageRequest> = {},
  ): Promise<ImageRequest> {
    const { files, env, hosts } = await readPackageSource(pipConfig(pip));
    return {
      files,
      env,
      serve: createPackageProxy({ ...hosts, files: [] }, () => {}),
      baseImage: image,
      onStep: () => {},
      steps: pipSteps("airlock_probe"),
      fresh: true,
      jobType: "science",
      repository,
      tags: ["v1.2.3", "latest"],
      owner,
      limits,
      ...changes,
    };
  }

  /** Builds an image. */
  async function build(
    pip: Partial<PipConfig>,
    changes: Partial<ImageRequest> = {},
    { engine: on = engine, onLog = () => {}, signal = soon() }: BuildOptions = {},
  ) {
    const log: Uint8Array[] = [];
    const request = await requestFor(pip, changes);
    const keep = (bytes: Uint8Array): void => {
      log.push(bytes);
      onLog();
    };
    const result = await makeImage(on, request, keep, signal);
    return { ...result, log: Buffer.concat(log).toString("utf8") };
  }

  return {
    engine,
    image,
    folder,
    repository,
    limits,
    made,
    requestFor,
    build,
    /** A package index with airlock_probe. */
    serve: (options: Partial<IndexOptions> = {}): Promise<PackageIndex> =>
      startIndex({ wheels: [builtPackage], ...options }),
    /** Removes the images, and checks that no container is left. */
    async close() {
      await removeImages(...made);
      expect(await engine.list(labels.agentName, repository, soon())).toEqual([]);
    },
  };
}
