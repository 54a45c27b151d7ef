import { configure, reset } from "@logtape/logtape";
import { expect, test } from "vitest";
import type { SandboxRequest } from "../sandbox/sandbox-request.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { SandboxJob } from "../sandbox/job.ts";
import {
  createPoolWorld,
  idleMs,
  idOf,
  never,
  request,
  type PoolWorld,
} from "../testing/pool-world.ts";

/** A pool in which containers wait for the request. */
async function warmed(least: number): Promise<PoolWorld> {
  const world = createPoolWorld(least);
  world.pool.keepReadyFor(request());
  await world.warm(least);
  return world;
}

const job: SandboxJob = {
  code: "",
  inputJson: "{}",
  timeoutMs: 1000,
  caps: { streamBytes: 1, artifactBytes: 1 },
};

test("a preload that failed is told to the operator, with its job type", async () => {
  const lines: string[] = [];
  await configure({
    sinks: {
      lines: ({ rawMessage, properties }) =>
        void lines.push(JSON.stringify([rawMessage, properties])),
    },
    loggers: [{ category: [], sinks: ["lines"] }],
  });
  await using world = createPoolWorld(0);
  const { start } = world;
  world.start = async (spec, signal) => ({
    ...(await start(spec, signal)),
    preloadErrors: { nunpy: "No module named 'nunpy'" },
  });
  await world.take(request({}, "science"));
  await reset();
  expect(lines.join()).toMatch(/preload of .*"nunpy".*"science".*No module named/);
});

test("a container is never given twice, and what is taken is replaced", async () => {
  await using world = createPoolWorld(1);
  const given = new Set<string>();
  for (let n = 0; n < 5; n++) {
    given.add(await world.take());
    await world.refill();
    await world.warm(1);
  }
  expect(given.size).toBe(5);
});

test.each<[string, SandboxRequest]>([
  ["job type", request({}, "science")],
  ["image", request({ image: "sha256:bb" })],
  ["memory", request({ memoryBytes: 2 })],
  ["network", request({ network: "bridge" })],
  ["runtime", request({ runtime: "runsc" })],
  ["environment", request({ env: { A: "1" } })],
  ["preload", request({ preload: ["json"] })],
])("jobs of another %s do not share containers", async (_what, other) => {
  await using world = await warmed(1);
  expect(await world.take(other)).toBe("container-2");
  expect(world.ready()).toBe(1);
});

test("containers that hold a GPU do not wait", async () => {
  await using world = createPoolWorld(1);
  await world.take(request({ gpus: ["0"] }));
  world.pool.keepReadyFor(request());
  await world.refill();
  await world.warm(1);
  expect(world.started.map((s) => s.spec.gpus)).toEqual([["0"], []]);
});

test("a container that died waiting is closed, never given, and replaced", async () => {
  await using world = await warmed(1);
  const [dead] = world.started;
  dead!.died.abort();
  await dead!.sandbox.closed;
  await world.warm(1);
  expect(await world.take()).toBe("container-2");
});

test("size 0 keeps nothing", async () => {
  await using world = createPoolWorld(0);
  await world.take();
  await world.refill();
  expect(world.started).toHaveLength(1);
});

test("tells of each kind what is ready, starting and in use", async () => {
  await using world = await warmed(2);
  const runsc = request({ runtime: "runsc" }, "science");
  const sandbox = await world.pool.acquire(request(), never);
  await world.pool.acquire(runsc, never);
  const backend = "engine";
  expect(world.pool.stats()).toEqual([
    { job_type: "default", runtime: null, backend, ready: 1, starting: 0, in_use: 1 },
    { job_type: "science", runtime: "runsc", backend, ready: 0, starting: 0, in_use: 1 },
  ]);
  await world.pool.giveBack(sandbox);
  expect(world.pool.stats()).toMatchObject([{ in_use: 0 }, { in_use: 1 }]);
});

test("together no more wait than the most; the kinds asked for last come first", async () => {
  await using world = createPoolWorld(2, { most: 3 });
  const kinds = ["a", "b", "c"].map((name) => request({}, name));
  for (const kind of kinds) {
    world.pool.keepReadyFor(kind);
    world.clock.advance(1000);
    while (world.pool.stats().at(-1)?.ready !== 2) await new Promise(setImmediate);
  }
  const ready = world.pool.stats().map(({ job_type, ready }) => [job_type, ready]);
  expect(ready).toEqual([
    ["a", 0],
    ["b", 1],
    ["c", 2],
  ]);
});

test("kinds that nobody asks for any more are let go", async () => {
  await using world = await warmed(1);
  await world.pass(idleMs + 15_000);
  await world.started[0]!.sandbox.closed;
  expect(world.pool.stats()).toEqual([]);
});

test("a container that died between the last look and its use makes way for a fresh one", async () => {
  await using world = await warmed(1);
  const { sandbox } = world.started[0]!;
  sandbox.fail(new EngineError("other", "the container ended before the code began"));
  const lent = await world.pool.acquire(request(), never);
  const report = lent.run(job, { signal: never, spoolDir: "" });
  while (world.started.length < 2) await new Promise(setImmediate);
  const fresh = world.started.at(-1)!;
  fresh.sandbox.finish({ executionMs: 42 });
  expect(await report).toMatchObject({ executionMs: 42 });
  expect(idOf(lent)).toBe("container-2");
  await world.pool.giveBack(lent);
  await Promise.all([sandbox.closed, fresh.sandbox.closed]);
});

test("owns its containers by their labels, until they are removed", async () => {
  await using world = createPoolWorld(1);
  const label = (n: number) => world.started[n]?.spec.labels.leaseId ?? "";
  const sandbox = await world.pool.acquire(request(), never);
  await world.refill();
  await world.warm(1);
  expect([label(0), label(1)].map(world.pool.owns)).toEqual([true, true]);
  expect(label(0)).not.toBe(label(1));
  await world.pool.giveBack(sandbox);
  while (world.pool.owns(label(0))) await new Promise(setImmediate);
  expect(world.pool.owns(label(1))).toBe(true);
});

test("closing removes what waits and what is about to, and what is in use keeps on", async () => {
  const world = await warmed(1);
  const sandbox = await world.pool.acquire(request(), never);
  const hold = Promise.withResolvers<void>();
  const { start } = world;
  world.start = async (spec, signal) => {
    await hold.promise;
    return start(spec, signal);
  };
  await world.refill();
  const closed = world.pool.close();
  hold.resolve();
  await closed;
  await world.started[1]!.sandbox.closed;
  expect(world.pool.stats()).toMatchObject([{ ready: 0, starting: 0, in_use: 1 }]);
  await world.pool.giveBack(sandbox);
  await world.started[0]!.sandbox.closed;
  expect(world.started).toHaveLength(2);
});
