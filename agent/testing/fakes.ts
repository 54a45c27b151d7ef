import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { join } from "node:path";
import { getLogger } from "@logtape/logtape";
import { afterAll } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { ExecutionErrorType } from "../../shared/wire/errors.ts";
import { createContainerSource, type StartSandbox } from "../backends/containers.ts";
import { connectEngine, type Engine } from "../engine/engine.ts";
import type { PipConfig } from "../packages/proxy.ts";
import type { InputFile, RunOptions, SandboxJob } from "../sandbox/job.ts";
import type { Sandbox, SandboxRequest, SandboxSpec } from "../sandbox/sandbox.ts";
import type { RunReport, Verdict } from "../sandbox/verdict.ts";
import { reportWith, specWith } from "./engine.ts";

export type FakeSandbox = ReturnType<typeof createFakeSandbox>;

/**
 * A container that does what the test says and records what it was asked to do. After `run` the code starts, unless the
 * test says otherwise; an abort gives a cancelled report.
 */
export function createFakeSandbox({ begins = true } = {}) {
  const running = Promise.withResolvers<{ job: SandboxJob; options: RunOptions }>();
  const dying = new AbortController();
  let why: { readonly outOfMemory: boolean } | null = null;
  let sessionEnv: Readonly<Record<string, string>> | null = null;
  const ended = Promise.withResolvers<RunReport>();
  const closed = Promise.withResolvers<void>();
  const given: InputFile[] = [];
  let closings = 0;
  ended.promise.catch(() => {});
  /** Ends the run with a report. */
  const finish = (report: Partial<RunReport> = {}): void => ended.resolve(reportOf(report));
  const sandbox: Sandbox = {
    backend: "engine",
    containerId: "c0ffee",
    pythonVersion: "3.13.5",
    preloadErrors: {},
    startupMs: 1,
    died: dying.signal,
    install: () => Promise.resolve(),
    giveFiles: (files) => {
      given.push(...files);
      return Promise.resolve();
    },
    beginSession: (env) => void (sessionEnv = env),
    whyDied: () => Promise.resolve(why),
    run: (job, options) => {
      options.signal.addEventListener("abort", () => finish({ ending: "cancelled" }));
      if (begins) options.onStarted?.();
      running.resolve({ job, options });
      return ended.promise;
    },
    close: () => {
      closings += 1;
      closed.resolve();
      finish({ ending: "lost", lostReason: "closed" });
      return Promise.resolve();
    },
  };
  return {
    ...sandbox,
    /** Ends it while it waits. */
    die: (reason?: { readonly outOfMemory: boolean }): void => {
      why = reason ?? null;
      finish({ ending: "lost", lostReason: "died", outOfMemory: reason?.outOfMemory ?? false });
      dying.abort();
    },
    /** The variables of the session that it serves. */
    sessionEnv: () => sessionEnv,
    /** Files that it was given. */
    given,
    /** How often it was closed. */
    closings: () => closings,
    /** Resolves with the job and options once it runs. */
    running: running.promise,
    finish,
    fail: ended.reject,
    closed: closed.promise,
  };
}

function reportOf(report: Partial<RunReport> = {}): RunReport {
  const usage = { cpuTimeMs: 3, maxRssBytes: 10 * 1024 ** 2, wallTimeMs: 6 };
  return reportWith({ executionMs: 5, usage, ...report });
}

const verdicts: Record<RunReport["ending"], Verdict> = {
  exited: verdict("succeeded", 0, null, "completed"),
  timeout: verdict("timeout", null, "execution_timeout", "execution"),
  cancelled: verdict("cancelled", 143, "cancelled", "execution"),
  sockets: verdict("oom", 137, "oom", "failed"),
  locks: verdict("oom", 137, "oom", "failed"),
  interpreter_ended: verdict("failed", null, "interpreter_ended", "failed"),
  lost: verdict("failed", null, "internal_error", "failed"),
};

function verdict(
  status: Verdict["status"],
  exitCode: number | null,
  type: ExecutionErrorType | null,
  phaseAtExit: Verdict["phaseAtExit"],
): Verdict {
  const error = type && ({ type, message: type, phase: "execution" } as const);
  return { status, exitCode, error, phaseAtExit };
}

/** A verdict for tests that are not about verdicts. */
export function judgeSimply({ ending, exitStatus }: RunReport): Verdict {
  if (ending !== "exited" || exitStatus === 0) return verdicts[ending];
  return verdict("failed", exitStatus, "runtime_error", "failed");
}

export type Answer = (request: IncomingMessage, response: ServerResponse) => unknown;

/** Starts engines that answer every request in one way; all end with the test file. */
export function fakeEngines() {
  const folder = tempFolder();
  const ends: (() => void)[] = [];
  afterAll(() => {
    for (const end of ends) end();
  });

  /** An engine that answers every request in one way. */
  async function fakeEngine(
    answer: Answer,
    warn?: (message: string) => void,
    files?: string,
  ): Promise<Engine> {
    const path = join(folder, `${ends.length}.sock`);
    const server = createServer(answer).listen(path);
    ends.push(() => {
      server.closeAllConnections();
      server.close();
    });
    await once(server, "listening");
    return connectEngine(`unix://${path}`, warn, files);
  }

  return { folder, fakeEngine };
}

export const idleMs = 600_000;
const quietMs = 100;
const tickMs = 15_000;

export type PoolWorld = ReturnType<typeof createPoolWorld>;

/** A source of containers over a fake engine and a clock that stands still. */
export function createPoolWorld(least: number, { most = 100, slots = 4 } = {}) {
  const clock = createTestClock();
  const engine = { isWell: true, checks: 0 };
  const started: { spec: SandboxSpec; sandbox: FakeSandbox; died: AbortController }[] = [];
  const start: StartSandbox = (spec) => {
    const died = new AbortController();
    const sandbox = { ...createFakeSandbox(), died: died.signal };
    const containerId = `container-${started.push({ spec, sandbox, died })}`;
    return Promise.resolve({ ...sandbox, containerId });
  };
  const world = {
    clock,
    /** Containers in the order of their starts; the n-th, from 1, has the id `container-<n>`. */
    started,
    engine,
    /** A test replaces it to make the engine fail or hang. */
    start,
    pool: createContainerSource({
      start: (spec, signal): Promise<Sandbox> => world.start(spec, signal),
      starters: 2,
      least,
      most,
      slots,
      idleMs,
      isEngineWell: () => engine.isWell,
      checkEngine: () => void (engine.checks += 1),
      clock,
      changed: () => {},
      log: getLogger(["airlock", "agent"]),
    }),
    /** Acquires a container and returns its id. */
    take: async (wanted = request()): Promise<string> =>
      idOf(await world.pool.acquire(wanted, never)),
    ready: (): number => world.pool.stats().reduce((sum, { ready }) => sum + ready, 0),
    /** Resolves once this many containers wait. */
    warm: async (count: number): Promise<void> => {
      while (world.ready() !== count) await settle();
    },
    /** Lets the pause before a refill pass. */
    refill: async (): Promise<void> => {
      await clock.sleeping(quietMs);
      clock.advance(quietMs);
      await settle();
    },
    /** Lets time pass, tick by tick. */
    pass: async (ms: number): Promise<void> => {
      for (let left = ms; left > 0; left -= tickMs) {
        await clock.sleeping(tickMs);
        clock.advance(Math.min(left, tickMs));
        await settle();
      }
    },
    [Symbol.asyncDispose]: (): Promise<void> => world.pool.close(),
  };
  return world;
}

const settle = () => new Promise(setImmediate);

export const never = new AbortController().signal;

export const idOf = ({ containerId }: Sandbox): string => containerId;

export function request(over: Partial<SandboxSpec> = {}, jobType = "default"): SandboxRequest {
  const spec = specWith({ image: "sha256:aa", memoryBytes: 1, ...over });
  return { jobType, tenant: "default", spec, packages: null, imports: [], files: [] };
}

export type TestClock = ReturnType<typeof createTestClock>;

type Sleeper = { readonly ms: number; readonly dueMs: number; readonly wake: () => void };

/** A clock that stands still until a test advances it. */
export function createTestClock() {
  let nowMs = Date.UTC(2026, 10, 21);
  const sleepers = new Set<Sleeper>();
  const watchers = new Set<() => void>();

  function sleep(ms: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    if (signal.aborted) reject(signal.reason as Error);
    const sleeper = { ms, dueMs: nowMs + ms, wake: resolve };
    sleepers.add(sleeper);
    const onAbort = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", onAbort, { once: true });
    watchers.forEach((look) => look());
    return promise.finally(() => {
      sleepers.delete(sleeper);
      signal.removeEventListener("abort", onAbort);
    });
  }

  /** Lets time pass and wakes each sleeper at its time. */
  function advance(ms: number): void {
    nowMs += ms;
    for (const sleeper of sleepers) {
      if (sleeper.dueMs <= nowMs) sleeper.wake();
    }
  }

  /** Resolves with the time of a sleep once someone sleeps for a time between the two. */
  async function sleeping(ms: number, mostMs = ms): Promise<number> {
    const { promise, resolve } = Promise.withResolvers<number>();
    const look = (): void => {
      const found = [...sleepers].find((sleeper) => sleeper.ms >= ms && sleeper.ms <= mostMs);
      if (found) resolve(found.ms);
    };
    watchers.add(look);
    look();
    return promise.finally(() => watchers.delete(look));
  }

  return { nowMs: () => nowMs, sleep, advance, sleeping };
}

/** An agent's settings of pip: none, with the changes that a test wants. */
export const pipConfig = (changes: Partial<PipConfig> = {}): PipConfig => ({
  indexUrl: undefined,
  findLinks: undefined,
  caFile: undefined,
  hosts: [],
  proxyUrl: undefined,
  npmRegistry: undefined,
  aptMirror: undefined,
  ...changes,
});
