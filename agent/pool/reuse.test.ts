import { expect, test } from "vitest";
import {
  createPoolWorld,
  idleMs,
  idOf,
  never,
  request,
  type PoolWorld,
} from "../testing/pool-world.ts";

const settle = () => new Promise(setImmediate);
const reused = request({ reuse: 3 });

function createWorld(least = 0, most = 10): PoolWorld {
  const world = createPoolWorld(least, { most });
  world.jobs = 3;
  return world;
}

/** Runs a job of a key, and returns the id of its container. */
async function serve({ pool }: PoolWorld, keyId: string | null, wanted = reused): Promise<string> {
  const sandbox = await pool.acquire(wanted, keyId, never);
  await pool.giveBack(sandbox);
  await settle();
  return idOf(sandbox);
}

test("a container serves the jobs of one key until it is worn, and is removed then", async () => {
  await using world = createWorld();
  const ids = [];
  for (let n = 0; n < 4; n++) ids.push(await serve(world, "ada"));
  expect(ids).toEqual(["container-1", "container-1", "container-1", "container-2"]);
  await world.started[0]!.sandbox.closed;
  expect(world.started.map(({ spec }) => world.pool.owns(spec.labels.leaseId!))).toEqual([
    false,
    true,
  ]);
});

test("no key gets a container that another, or none, has used", async () => {
  await using world = createWorld();
  const ids = [];
  for (const key of ["ada", "bob", null, "bob", null, "ada"]) ids.push(await serve(world, key));
  expect(ids).toEqual([1, 2, 3, 2, 3, 1].map((n) => `container-${n}`));
});

test("one that has served its key comes before one that is ready", async () => {
  await using world = createWorld(1);
  world.pool.expect(reused);
  await world.warm(1);
  expect([await serve(world, "ada"), await serve(world, "ada")]).toEqual([
    "container-1",
    "container-1",
  ]);
});

test("two jobs of a key at once have two containers", async () => {
  await using world = createWorld();
  const first = await world.pool.acquire(reused, "ada", never);
  expect(await serve(world, "ada")).toBe("container-2");
  await world.pool.giveBack(first);
});

test("a job that comes while the container of its key is made ready waits for it", async () => {
  await using world = createWorld();
  const { pool } = world;
  const first = await pool.acquire(reused, "ada", never);
  void pool.giveBack(first);
  const [second, third, other] = await Promise.all(
    ["ada", "ada", "bob"].map((key) => pool.acquire(reused, key, never)),
  );
  expect([second, third, other].map((sandbox) => idOf(sandbox!))).toEqual([
    "container-1",
    "container-2",
    "container-3",
  ]);
});

test("a job can be given up while the container of its key is made ready; that one is removed", async () => {
  await using world = createWorld();
  const { promise, resolve } = Promise.withResolvers<void>();
  const first = await world.pool.acquire(reused, "ada", never);
  world.rearmed = promise;
  void world.pool.giveBack(first);
  const giveUp = new AbortController();
  const second = world.pool.acquire(reused, "ada", giveUp.signal);
  giveUp.abort(new Error("no time"));
  await expect(second).rejects.toThrow("no time");
  resolve();
  await world.started[0]!.sandbox.closed;
  expect(world.pool.stats()).toMatchObject([{ ready: 0, in_use: 0 }]);
});

test("a container that is not ready for one more job is closed once", async () => {
  const world = createWorld();
  world.jobs = 1;
  await serve(world, "ada");
  await world.started[0]!.sandbox.closed;
  await world.pool.close();
  expect(world.started[0]!.sandbox.closings()).toBe(1);
  expect(world.pool.owns(world.started[0]!.spec.labels.leaseId!)).toBe(false);
});

test("single use stays single use", async () => {
  await using world = createWorld();
  expect(await serve(world, "ada", request())).toBe("container-1");
  await world.started[0]!.sandbox.closed;
  expect(await serve(world, "ada", request())).toBe("container-2");
});

test("a discarded container is removed at once, whatever is given back after", async () => {
  await using world = createWorld();
  const sandbox = await world.pool.acquire(reused, "ada", never);
  world.pool.discard(sandbox);
  await world.started[0]!.sandbox.closed;
  await world.pool.giveBack(sandbox);
  expect(await serve(world, "ada")).toBe("container-2");
});

test("a used container that dies is removed, never given", async () => {
  await using world = createWorld();
  await serve(world, "ada");
  world.started[0]!.died.abort();
  await world.started[0]!.sandbox.closed;
  expect(await serve(world, "ada")).toBe("container-2");
});

test("one whose key does not come back is let go", async () => {
  await using world = createWorld();
  await serve(world, "ada");
  await world.pass(idleMs + 15_000);
  await world.started[0]!.sandbox.closed;
  expect(world.pool.stats()).toEqual([]);
});

test("used ones make room, the longest unused first", async () => {
  await using world = createWorld(1, 2);
  for (const key of ["ada", "bob"]) {
    await serve(world, key);
    world.clock.advance(1000);
  }
  await world.started[0]!.sandbox.closed;
  expect(world.pool.stats()).toMatchObject([{ ready: 2 }]);
  expect(await serve(world, "bob")).toBe("container-2");
});

test("at the end used ones are removed, and those that come back then too", async () => {
  const world = createWorld();
  await serve(world, "ada");
  const late = await world.pool.acquire(reused, "bob", never);
  await world.pool.close();
  await world.started[0]!.sandbox.closed;
  await world.pool.giveBack(late);
  await world.started[1]!.sandbox.closed;
  expect(world.pool.stats()).toMatchObject([{ ready: 0, in_use: 0 }]);
});
