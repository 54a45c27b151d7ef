import { getLogger } from "@logtape/logtape";
import { createContainerSource, type StartSandbox } from "../container/container-source.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";
import type { SandboxRequest } from "../sandbox/sandbox-request.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { createFakeSandbox, type FakeSandbox } from "./fake-sandbox.ts";
import { createTestClock, type TestClock } from "./test-clock.ts";

export const idleMs = 600_000;
const quietMs = 100;
const tickMs = 15_000;

/** A source of containers over a fake engine and a clock that stands still. */
export interface PoolWorld extends AsyncDisposable {
  readonly pool: SandboxSource;
  readonly clock: TestClock;
  /** Containers in the order of their starts; the n-th, from 1, has the id `container-<n>`. */
  readonly started: { spec: SandboxSpec; sandbox: FakeSandbox; died: AbortController }[];
  /** A test replaces it to make the engine fail or hang. */
  start: StartSandbox;
  readonly engine: { isWell: boolean; checks: number };
  /** Acquires a container and returns its id. */
  readonly take: (request?: SandboxRequest) => Promise<string>;
  readonly ready: () => number;
  /** Resolves once this many containers wait. */
  readonly warm: (count: number) => Promise<void>;
  /** Lets the pause before a refill pass. */
  readonly refill: () => Promise<void>;
  /** Lets time pass, tick by tick. */
  readonly pass: (ms: number) => Promise<void>;
}

export function createPoolWorld(least: number, { most = 100, slots = 4 } = {}): PoolWorld {
  const clock = createTestClock();
  const engine = { isWell: true, checks: 0 };
  const world: PoolWorld = {
    clock,
    started: [],
    engine,
    start: (spec) => {
      const died = new AbortController();
      const sandbox = { ...createFakeSandbox(), died: died.signal };
      const containerId = `container-${world.started.push({ spec, sandbox, died })}`;
      return Promise.resolve({ ...sandbox, containerId });
    },
    pool: createContainerSource({
      start: (spec, signal) => world.start(spec, signal),
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
    take: async (wanted = request()) => idOf(await world.pool.acquire(wanted, never)),
    ready: () => world.pool.stats().reduce((sum, { ready }) => sum + ready, 0),
    warm: async (count) => {
      while (world.ready() !== count) await settle();
    },
    refill: async () => {
      await clock.sleeping(quietMs);
      clock.advance(quietMs);
      await settle();
    },
    pass: async (ms) => {
      for (let left = ms; left > 0; left -= tickMs) {
        await clock.sleeping(tickMs);
        clock.advance(Math.min(left, tickMs));
        await settle();
      }
    },
    [Symbol.asyncDispose]: () => world.pool.close(),
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
