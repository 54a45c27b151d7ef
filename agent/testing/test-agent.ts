import { randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { getLogger } from "@logtape/logtape";
import { Agent } from "undici";
import { afterEach, beforeEach } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { EngineHealth } from "../../shared/wire/health.ts";
import type {
  LeasedBuild,
  LeasedCall,
  LeasedJob,
  LeasedSession,
} from "../../shared/wire/leases.ts";
import { type AgentDeps, runAgent } from "../agent.ts";
import { withGpus } from "../backends/choose.ts";
import { createContainerSource, type StartSandbox } from "../backends/containers.ts";
import type { MakeImage, ShareImage } from "../builds/build.ts";
import { createClient } from "../client/client.ts";
import { fixedToken } from "../client/http.ts";
import { createEngineMonitor, type EngineMonitor } from "../engine/health.ts";
import { createFileStore, openSpoolDir } from "../host/files.ts";
import { createGpus } from "../host/gpus.ts";
import { createAdmission, createRuntimeChoice } from "../host/policy.ts";
import { createImages, createInventory } from "../images/images.ts";
import type { SandboxSpec } from "../sandbox/sandbox.ts";
import { createChangeSignal } from "../waiting.ts";
import { createLeases } from "../work/leases.ts";
import { runLease } from "../work/run.ts";
import { startFakeApi } from "./fake-api.ts";
import {
  createFakeSandbox,
  createTestClock,
  type FakeSandbox,
  judgeSimply,
  pipConfig,
} from "./fakes.ts";

export const testImage = `sha256:${"ab".repeat(32)}`;
export const goodEngine: EngineHealth = { available: true, version: "test", runtimes: ["runc"] };

export type TestAgent = Awaited<ReturnType<typeof createTestAgent>>;
export type RunningAgent = ReturnType<TestAgent["run"]>;

const noLanguages = {};

/** The agent of the test that runs. */
export let t: TestAgent;

/** Gives each test its own agent. */
export function useTestAgent({
  hasGoodEngine = false,
  ...options
}: AgentOptions & { hasGoodEngine?: boolean } = {}): void {
  beforeEach(async () => {
    t = await createTestAgent(options);
    if (hasGoodEngine) t.assumeGoodEngine();
  });
  afterEach(() => t[Symbol.asyncDispose]());
}

/** Gives the test that runs another agent. */
export async function replaceTestAgent(options?: AgentOptions): Promise<void> {
  await t[Symbol.asyncDispose]();
  t = await createTestAgent(options);
}

type AgentOptions = { slots?: number; maxSessions?: number; gpuIds?: string[] };

/** The parts of an agent around a fake API, a fake engine and a clock that stands still. */
export async function createTestAgent({
  slots = 2,
  maxSessions = 0,
  gpuIds = [],
}: AgentOptions = {}) {
  const api = await startFakeApi();
  const clock = createTestClock();
  const changes = createChangeSignal();
  const gpus = createGpus(gpuIds, changes.notify);
  const log = getLogger(["airlock", "agent"]);
  const agent = {
    id: randomUUID(),
    name: "test",
    version: "0.0.0",
    labels: {},
    accepts: { job_types: null, builds: true },
  };
  const root = tempFolder();
  const end = new AbortController();
  const abort = new AbortController();
  const runs: Promise<unknown>[] = [];
  const started: PromiseWithResolvers<FakeSandbox>[] = [];
  const specs: SandboxSpec[] = [];
  const imagesAsked: (readonly string[])[] = [];
  const nth = (n: number) => (started[n] ??= Promise.withResolvers<FakeSandbox>());

  const client = createClient(
    { url: api.url, token: fixedToken("test-token-0123456789"), dispatcher: new Agent() },
    { retries: 3, minTimeout: 1, maxTimeout: 2 },
  );
  const engine = createEngineMonitor({
    ping: async () => {
      if (own.health instanceof Error) throw own.health;
    },
    describe: async () => {
      if (own.health instanceof Error) throw own.health;
      return own.health;
    },
    forkProblem: () => null,
    sweep: () => Promise.resolve(),
    errors: () => [],
    clock,
    changes,
    log,
  });
  const store = {
    imageId: () => Promise.resolve(testImage),
    imageNames: () => Promise.resolve([testImage]),
    labelledImageId: () => Promise.resolve(null),
    pull: () => Promise.resolve(),
  };
  const images = createImages(store, end.signal);
  const deps: AgentDeps = {
    agent,
    admission: createAdmission({
      policy: { agent_builds: true, max_built_bytes: 1 },
      images,
      engine,
    }),
    client,
    engine,
    changes,
    clock,
    gpus,
    log,
    leases: createLeases({ clock, changes }, slots, api.intervals),
    builds: createLeases<LeasedBuild>({ clock, changes }, 1, api.intervals),
    calls: createLeases({ clock, changes }, maxSessions, api.intervals),
    sessions: createLeases<LeasedSession>({ clock, changes }, maxSessions, api.intervals),
    openSessions: new Map(),
    inventory: createInventory(store, changes),
    makeImage: (order, onLog, signal) => own.makeImage(order, onLog, signal),
    shareImage: (...asked) => own.shareImage(...asked),
    fetchImages: (references) => imagesAsked.push(references),
    missingImages: () => [],
    languages: { known: () => noLanguages, lookInto: () => {} },
    pip: pipConfig(),
    images,
    sandboxes: createContainerSource({
      start: withGpus((spec, signal) => own.start(spec, signal), gpus, clock, end.signal),
      starters: 2,
      least: 0,
      most: 0,
      slots,
      idleMs: 600_000,
      isEngineWell: () => true,
      checkEngine: engine.checkSoon,
      clock,
      changed: changes.notify,
      log,
    }),
    files: createFileStore(join(root, "input-files"), 1024 ** 2),
    spool: await openSpoolDir(root, agent.id, "here"),
    chooseRuntime: createRuntimeChoice({ runtime: null, strict: false }, log),
    seccomp: true,
    requirements: { allowed: false, cache: null },
    judge: judgeSimply,
    rotateToken: () => {},
    polled: () => {},
    drainGraceMs: 10_000,
  };
  /** What a test replaces. */
  const own: {
    /** What the engine answers to a probe; an Error is thrown. */
    health: EngineHealth | Error;
    makeImage: MakeImage;
    shareImage: ShareImage;
    start: StartSandbox;
  } = {
    health: goodEngine,
    makeImage: () => Promise.resolve({ digest: testImage, pythonVersion: "3.13.5" }),
    shareImage: () => Promise.resolve(null),
    start: (spec) => {
      const sandbox = createFakeSandbox();
      nth(specs.push(spec) - 1).resolve(sandbox);
      return Promise.resolve(sandbox);
    },
  };
  const self = Object.assign(own, {
    api,
    clock,
    deps,
    /** The images that each poll asked the agent to fetch. */
    imagesAsked,
    /** The n-th container, from 0, as soon as it is started. */
    sandbox: (n: number) => nth(n).promise,
    /** The same, with what it runs, once it does. */
    running: async (n = 0) => {
      const sandbox = await nth(n).promise;
      return { sandbox, ...(await sandbox.running) };
    },
    specs,
    /** Marks the engine as working without asking it. */
    assumeGoodEngine: () => {
      const good: EngineMonitor = {
        ...engine,
        slotsToOffer: () => slots,
        health: () => goodEngine,
      };
      Object.assign(deps, { engine: good });
    },
    /** Adds the lease of a job and runs the job, without the rest of the agent. */
    begin: (job?: Partial<LeasedJob>) => {
      const lease = deps.leases.take(testJob(job), clock.nowMs());
      return { lease, ended: runLease(deps, lease) };
    },
    /** Starts the whole agent. */
    run: () => {
      const stop = new AbortController();
      const ended = runAgent(deps, { stop: stop.signal, abort: abort.signal });
      ended.catch(() => {});
      runs.push(ended);
      return { stop: () => stop.abort(), abort: () => abort.abort(), ended };
    },
    [Symbol.asyncDispose]: async () => {
      end.abort();
      abort.abort();
      await Promise.allSettled(runs);
      const left = (await readdir(join(root, agent.id))).filter((name) => name !== "host-scope");
      if (left.length > 0) throw new Error(`left in the spool folder: ${left.join()}`);
      await client.close();
      await api[Symbol.asyncDispose]();
    },
  });
  return self;
}

export function testJob(job: Partial<LeasedJob> = {}): LeasedJob {
  return {
    lease_id: randomUUID(),
    execution_id: randomUUID(),
    attempt: 1,
    correlation_id: "test",
    job_type: {
      name: "default",
      base_image: "python:3.13-slim",
      requirements: [],
      memory_limit: "512m",
      cpu_limit: 1,
      pids: 128,
      timeout: 30,
      network: "none",
      loopback: "tcp",
      max_sockets: 1024,
      preload: [],
      labels: {},
      gpus: 0,
      env: {},
    },
    tenant: "default",
    image: job.job_type?.base_image ?? "python:3.13-slim",
    code: "print('hello')",
    input_json: "{}",
    requirements: [],
    timeout_s: 30,
    startup_timeout_s: 60,
    caps: { stream_bytes: 1024 ** 2, artifact_bytes: 1024 ** 2 },
    ...job,
  };
}

export function testSession(session: Partial<LeasedSession> = {}): LeasedSession {
  const { job_type, image, tenant } = testJob();
  return {
    lease_id: randomUUID(),
    session_id: randomUUID(),
    attempt: 1,
    correlation_id: "test",
    tenant,
    job_type,
    image,
    requirements: [],
    env: {},
    startup_timeout_s: 60,
    ...session,
  };
}

/** A call of a session. */
export function testCall(
  { lease_id }: LeasedSession,
  { call, ...job }: Omit<Partial<LeasedJob>, "call"> & { call?: Partial<LeasedCall> } = {},
): LeasedJob {
  const own = { number: 1, context: "default", contexts: [], restart: false, env: {}, fetch: [] };
  return testJob({ results: true, ...job, call: { session_lease_id: lease_id, ...own, ...call } });
}

export function testBuild(build: Partial<LeasedBuild> = {}): LeasedBuild {
  return {
    lease_id: randomUUID(),
    attempt: 1,
    correlation_id: "test",
    job_type: "science",
    base_image: "python:3.13-slim",
    steps: [{ kind: "pip", packages: ["left-pad==1.0"] }],
    fresh: false,
    repository: "airlock-science",
    tags: ["v1.2.3", "latest"],
    timeout_s: 600,
    share: "none",
    share_max_bytes: 0,
    ...build,
  };
}
