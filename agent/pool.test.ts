import { getLogger } from "@logtape/logtape";
import { expect, test } from "vitest";
import { createChanges } from "./changes.ts";
import { createPool, type Pool, type StartSandbox } from "./pool.ts";
import type { Sandbox, SandboxSpec } from "./sandbox/types.ts";
import { createFakeSandbox, type FakeSandbox } from "./testing/fake-sandbox.ts";
import { createTestClock, type TestClock } from "./testing/test-clock.ts";

const never = new AbortController().signal;
const refillAfterMs = 30;
const idleMs = 600_000;

interface World extends AsyncDisposable {
  pool: Pool;
  clock: TestClock;
  started: { spec: SandboxSpec; sandbox: FakeSandbox; died: AbortController }[];
  /** Replaced where the engine should fail or hang. */
  start: StartSandbox;
  engine: { isWell: boolean };
  /** Resolves once so many containers wait. */
  warm: (count: number) => Promise<void>;
  /** Lets the pause before a refill pass. */
  refill: () => Promise<void>;
}

function createWorld(size: number): World {
  const clock = createTestClock();
  const changes = createChanges();
  const engine = { isWell: true };
  const world: World = {
    clock,
    started: [],
    engine,
    start: (spec) => {
      const died = new AbortController();
      const sandbox = { ...createFakeSandbox(), died: died.signal };
      const containerId = `container-${world.started.push({ spec, sandbox, died })}`;
      changes.tell();
      return Promise.resolve({ ...sandbox, containerId });
    },
    pool: createPool({
      start: (spec, signal) => world.start(spec, signal),
      size,
      idleMs,
      isEngineWell: () => engine.isWell,
      clock,
      changes,
      log: getLogger(["airlock", "agent"]),
    }),
    warm: async (count) => {
      while (world.pool.warm() !== count) await new Promise(setImmediate);
    },
    refill: async () => {
      await clock.sleeping(refillAfterMs);
      clock.advance(refillAfterMs);
    },
    [Symbol.asyncDispose]: () => world.pool.close(),
  };
  return world;
}

function spec(over: Partial<SandboxSpec> = {}, leaseId = "lease"): SandboxSpec {
  return {
    image: "sha256:aa",
    labels: { agentId: "a", agentName: "test", leaseId },
    memoryBytes: 1,
    cpus: 1,
    pids: 1,
    network: "none",
    runtime: null,
    env: {},
    preload: [],
    gpus: 0,
    seccomp: true,
    ...over,
  };
}

const idOf = ({ containerId }: Sandbox): string => containerId;

test("the first job of a kind starts cold; the next finds a container that waited", async () => {
  await using world = createWorld(2);
  const { pool } = world;
  expect(idOf(await pool.acquire(spec(), never))).toBe("container-1");
  await world.refill();
  await world.warm(2);
  const ahead = expect.stringMatching(/^warm-/) as string;
  expect(world.started.map((s) => s.spec.labels.leaseId)).toEqual(["lease", ahead, ahead]);
  const ids = [await pool.acquire(spec({}, "x"), never), await pool.acquire(spec({}, "y"), never)];
  expect(ids.map(idOf)).toEqual(["container-2", "container-3"]);
  expect(pool.warm()).toBe(0);
});

test("a container is never given twice, and what is taken is replaced", async () => {
  await using world = createWorld(1);
  const given = new Set<string>();
  for (let n = 0; n < 5; n++) {
    given.add(idOf(await world.pool.acquire(spec(), never)));
    await world.refill();
    await world.warm(1);
  }
  expect(given.size).toBe(5);
});

test.each<[string, Partial<SandboxSpec>]>([
  ["image", { image: "sha256:bb" }],
  ["memory", { memoryBytes: 2 }],
  ["network", { network: "bridge" }],
  ["runtime", { runtime: "runsc" }],
  ["environment", { env: { A: "1" } }],
  ["preload", { preload: ["json"] }],
])("jobs of another %s do not share containers", async (_what, other) => {
  await using world = createWorld(1);
  await world.pool.acquire(spec(), never);
  await world.refill();
  await world.warm(1);
  const before = world.started.length;
  await world.pool.acquire(spec(other), never);
  expect(world.started).toHaveLength(before + 1);
  expect(world.pool.warm()).toBe(1);
});

test("containers that hold a GPU do not wait", async () => {
  await using world = createWorld(1);
  await world.pool.acquire(spec({ gpus: 1 }), never);
  await world.refill();
  await world.pool.acquire(spec(), never);
  await world.refill();
  await world.warm(1);
  expect(world.started.map((s) => s.spec.gpus)).toEqual([1, 0, 0]);
});

test("a container that died waiting is closed, never given, and replaced", async () => {
  await using world = createWorld(1);
  await world.pool.acquire(spec(), never);
  await world.refill();
  await world.warm(1);
  const dead = world.started.at(-1)!;
  dead.died.abort();
  await dead.sandbox.closed;
  await world.warm(1);
  expect(idOf(await world.pool.acquire(spec(), never))).toBe("container-3");
});

test("size 0 keeps nothing", async () => {
  await using world = createWorld(0);
  await world.pool.acquire(spec(), never);
  await world.refill();
  expect(world.pool.warm()).toBe(0);
  expect(world.started).toHaveLength(1);
});

test("an ill engine is not asked for containers that nobody needs yet", async () => {
  await using world = createWorld(1);
  world.engine.isWell = false;
  await world.pool.acquire(spec(), never);
  await world.refill();
  expect(world.started).toHaveLength(1);
});

test("after a failed start the kind rests until its next job", async () => {
  await using world = createWorld(1);
  const { start } = world;
  await world.pool.acquire(spec(), never);
  const failed = Promise.withResolvers<void>();
  world.start = () => {
    failed.resolve();
    return Promise.reject(new Error("no space"));
  };
  await world.refill();
  await failed.promise;
  await new Promise(setImmediate);
  world.start = start;
  await world.pool.acquire(spec(), never);
  await world.refill();
  await world.warm(1);
  expect(world.started).toHaveLength(3);
});

test("kinds that nobody asks for any more are let go", async () => {
  await using world = createWorld(1);
  await world.pool.acquire(spec(), never);
  await world.refill();
  await world.warm(1);
  for (let quarter = 0; quarter < 4; quarter++) {
    await world.clock.sleeping(idleMs / 4);
    world.clock.advance(idleMs / 4);
  }
  await world.started.at(-1)!.sandbox.closed;
  await world.warm(0);
  expect(world.started).toHaveLength(2);
});

test("owns what it starts ahead, by its label, until that is closed", async () => {
  await using world = createWorld(1);
  const label = (n: number) => world.started[n]?.spec.labels.leaseId ?? "";
  await world.pool.acquire(spec(), never);
  expect(world.pool.owns("lease")).toBe(false);
  await world.refill();
  await world.warm(1);
  const sandbox = await world.pool.acquire(spec(), never);
  expect(world.pool.owns(label(1))).toBe(true);
  await sandbox.close();
  expect(world.pool.owns(label(1))).toBe(false);
});

test("closing removes what waits and what is about to", async () => {
  const world = createWorld(1);
  await world.pool.acquire(spec(), never);
  await world.refill();
  await world.warm(1);
  await world.pool.close();
  await world.started.at(-1)!.sandbox.closed;
  expect(world.pool.warm()).toBe(0);
});
