import { describe, expect, it, test } from "vitest";
import { EngineError, type Sandbox, withRun } from "../sandbox/sandbox.ts";
import { createFakeSandbox, createPoolWorld, idOf, never, request } from "../testing/fakes.ts";
import { withSpare } from "./ready.ts";

const settle = () => new Promise(setImmediate);

/** Has starts wait until they are let go, one by one. */
function holdStarts(world: ReturnType<typeof createPoolWorld>) {
  const { start } = world;
  const held: PromiseWithResolvers<void>[] = [];
  world.start = async (spec, signal) => {
    const hold = Promise.withResolvers<void>();
    held.push(hold);
    await hold.promise;
    return start(spec, signal);
  };
  return held;
}

test("no more than two are started ahead at a time", async () => {
  await using world = createPoolWorld(5);
  const held = holdStarts(world);
  world.pool.keepReadyFor(request());
  await settle();
  expect(held).toHaveLength(2);
  held[0]!.resolve();
  await world.warm(1);
  await settle();
  expect(held).toHaveLength(3);
  held.forEach(({ resolve }) => resolve());
});

test("a job that finds no container ready takes one that is about to be", async () => {
  await using world = createPoolWorld(1);
  const held = holdStarts(world);
  world.pool.keepReadyFor(request());
  await settle();
  const first = world.pool.acquire(request(), never);
  const second = world.pool.acquire(request(), never);
  await settle();
  expect(held).toHaveLength(2);
  held[0]!.resolve();
  expect(idOf(await first)).toBe("container-1");
  held[1]!.resolve();
  expect(idOf(await second)).toBe("container-2");
});

test("a job that gives up waiting leaves the container to the next", async () => {
  await using world = createPoolWorld(1);
  const held = holdStarts(world);
  world.pool.keepReadyFor(request());
  await settle();
  const impatient = new AbortController();
  const first = world.pool.acquire(request(), impatient.signal);
  impatient.abort(new Error("cancelled"));
  await expect(first).rejects.toThrow("cancelled");
  held[0]!.resolve();
  await world.warm(1);
  expect(await world.take()).toBe("container-1");
});

test("a job whose awaited start fails starts its own", async () => {
  await using world = createPoolWorld(1);
  const held = holdStarts(world);
  world.pool.keepReadyFor(request());
  await settle();
  const job = world.pool.acquire(request(), never);
  held[0]!.reject(new EngineError("other", "no space"));
  while (held.length < 2) await settle();
  held[1]!.resolve();
  expect(idOf(await job)).toBe("container-1");
});

test("an ill engine is not asked for containers that nobody needs yet", async () => {
  await using world = createPoolWorld(1);
  world.engine.isWell = false;
  world.pool.keepReadyFor(request());
  await settle();
  expect(world.started).toHaveLength(0);
  world.engine.isWell = true;
  await world.pass(15_000);
  await world.warm(1);
});

test("after failed starts a kind rests, longer each time, and the engine is checked", async () => {
  await using world = createPoolWorld(1);
  const { start } = world;
  let tries = 0;
  world.start = () => {
    tries += 1;
    return Promise.reject(new EngineError("other", "no space"));
  };
  world.pool.keepReadyFor(request());
  for (const [least, most] of [
    [250, 500],
    [500, 1000],
    [1000, 2000],
  ] as const) {
    const before = tries;
    const restMs = await world.clock.sleeping(least, most);
    expect(tries).toBe(before === 0 ? 1 : before);
    world.clock.advance(restMs - 1);
    world.pool.keepReadyFor(request());
    await settle();
    expect(tries).toBe(Math.max(before, 1));
    world.clock.advance(1);
    while (tries === Math.max(before, 1)) await settle();
  }
  expect(world.engine.checks).toBe(tries);
  world.start = start;
  world.clock.advance(60_000);
  await world.warm(1);
});

test("a kind that cannot start is not tried again before its next job", async () => {
  await using world = createPoolWorld(1);
  const { start } = world;
  world.start = () => Promise.reject(new EngineError("image_not_found", "gone"));
  world.pool.keepReadyFor(request());
  await settle();
  world.start = start;
  await world.pass(60_000);
  expect(world.started).toHaveLength(0);
  expect(world.engine.checks).toBe(0);
  await world.take();
  await world.refill();
  await world.warm(1);
});

describe("spare", () => {
  const engineError = new EngineError("other", "the container has died");
  const never = new AbortController().signal;

  /** A waiting container whose first use fails, and the spare that may replace it. */
  function createWorld(error: Error) {
    const waiting: Sandbox = { ...createFakeSandbox(), giveFiles: () => Promise.reject(error) };
    const spare = { ...createFakeSandbox(), containerId: "spare" };
    return { spare, sandbox: withSpare(waiting, () => Promise.resolve(spare)) };
  }

  it("a container that died while it waited is replaced at its first use", async () => {
    const { spare, sandbox } = createWorld(engineError);
    const file = { name: "x", path: "/x", sizeBytes: 1, sha256: "" };
    await sandbox.giveFiles([file], never);
    expect(spare.given).toEqual([file]);
    expect(sandbox.containerId).toBe("spare");
    await sandbox.close();
    expect(spare.closings()).toBe(1);
  });

  it("what is made of the waiting container says of itself what the spare says", async () => {
    const { spare, sandbox } = createWorld(engineError);
    Object.assign(spare, { hasPackages: true, mounted: new Set(["a"]), pythonVersion: "3.14.0" });
    const own = withRun(sandbox, () => Promise.reject(new Error("its own run")));
    expect(own).toMatchObject({ containerId: "c0ffee", hasPackages: undefined });
    await own.giveFiles([], never);
    const { hasPackages, mounted, pythonVersion } = spare as Sandbox;
    const said = { containerId: "spare", hasPackages, mounted, pythonVersion, died: spare.died };
    for (const each of [sandbox, own]) expect(each).toMatchObject(said);
    await expect(own.run(...([] as unknown as Parameters<Sandbox["run"]>))).rejects.toThrow(
      "its own run",
    );
  });

  it.each([
    ["what is no failure of the engine", new Error("no"), never],
    ["a job that is given up", engineError, AbortSignal.abort()],
  ])("%s replaces no container", async (_what, error, signal) => {
    const { sandbox } = createWorld(error);
    await expect(sandbox.giveFiles([], signal)).rejects.toBe(error);
    expect(sandbox.containerId).toBe("c0ffee");
  });

  it("a container that has been used is not replaced", async () => {
    const { sandbox } = createWorld(engineError);
    await sandbox.install({} as Parameters<Sandbox["install"]>[0], never);
    await expect(sandbox.giveFiles([], never)).rejects.toBe(engineError);
  });
});
