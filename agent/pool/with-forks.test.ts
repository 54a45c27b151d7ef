import { getLogger } from "@logtape/logtape";
import { describe, expect, test, vi } from "vitest";
import type { Forks } from "../mother/forks.ts";
import { NotForkable } from "../mother/mother.ts";
import { EngineError, type Sandbox } from "../sandbox/types.ts";
import { createPoolWorld, idOf, never, request } from "../testing/pool-world.ts";
import { withForks } from "./with-forks.ts";

const slots = 2;

/** A pool with forks that are told what to do. */
function createWorld(
  fork: () => Promise<void> = () => Promise.resolve(),
  { isUsable = true, idleMs = 0 } = {},
) {
  const world = createPoolWorld(0);
  const opened: Sandbox[] = [];
  const closed: Sandbox[] = [];
  const forks: Forks = {
    isUsable: () => isUsable,
    open: async () => {
      await fork();
      const sandbox = {
        containerId: `fork-${opened.length + 1}`,
        died: new AbortController().signal,
        close: () => {
          closed.push(sandbox);
          return Promise.resolve();
        },
      } as unknown as Sandbox;
      opened.push(sandbox);
      return sandbox;
    },
    owns: (label) => label === "mother-1",
    close: () => Promise.resolve(),
  };
  const pool = withForks({
    pool: world.pool,
    forks,
    slots,
    idleMs,
    log: getLogger("test"),
  });
  return { pool, world, opened, closed };
}

test("a job gets a fork, which ends when it is given back", async () => {
  const { pool, closed } = createWorld();
  const sandbox = await pool.acquire(request(), "ada", never);
  expect(sandbox.containerId).toBe("fork-1");
  expect(pool.stats()).toMatchObject([{ ready: 1, starting: 0, in_use: 1 }]);
  await pool.giveBack(sandbox);
  await pool.giveBack(sandbox).catch(() => {});
  expect(closed).toEqual([sandbox]);
  expect(pool.stats()).toMatchObject([{ ready: 2, starting: 0, in_use: 0 }]);
});

test("a job whose lease is dropped ends at once", async () => {
  const { pool, closed } = createWorld();
  const sandbox = await pool.acquire(request(), null, never);
  pool.discard(sandbox);
  pool.discard(sandbox);
  expect(closed).toEqual([sandbox]);
});

describe("a container of the pool serves", () => {
  test.each([
    ["a job with packages", {}, true],
    ["a job under gVisor", { runtime: "runsc" }, false],
    ["a job with a network", { network: "bridge" as const }, false],
    ["a job with a GPU", { gpus: ["0"] }, false],
  ])("%s", async (_what, spec, installs) => {
    const { pool, opened } = createWorld();
    const sandbox = await pool.acquire({ ...request(spec), installs }, "ada", never);
    expect(idOf(sandbox)).toBe("container-1");
    expect(opened).toEqual([]);
    await pool.giveBack(sandbox);
  });

  test("all jobs where forks are not usable", async () => {
    const { pool, opened } = createWorld(undefined, { isUsable: false });
    pool.expect(request());
    expect(idOf(await pool.acquire(request(), "ada", never))).toBe("container-1");
    expect(opened).toEqual([]);
  });

  test("a job of a kind that cannot be forked", async () => {
    const { pool } = createWorld(() => Promise.reject(new NotForkable("a thread was started")));
    const sandbox = await pool.acquire(request(), "ada", never);
    expect(idOf(sandbox)).toBe("container-1");
    await pool.giveBack(sandbox);
  });
});

test("a failure of the engine is the job's, not a reason for a container", async () => {
  const { pool } = createWorld(() => Promise.reject(new EngineError("other", "the mother ended")));
  await expect(pool.acquire(request(), "ada", never)).rejects.toThrow("the mother ended");
  expect(pool.stats()).toMatchObject([{ starting: 0, in_use: 0 }]);
});

test("what is expected is opened ahead, and so is the next fork of a kind whose job has ended", async () => {
  const { pool, opened, closed } = createWorld(undefined, { idleMs: 60_000 });
  pool.expect(request());
  await pool.giveBack(await pool.acquire(request(), "ada", never));
  await vi.waitFor(() => expect([opened.length, closed.length]).toEqual([2, 1]));
  await pool.close();
  expect(closed).toHaveLength(2);
});

test("mothers are spared by the reaper", () => {
  const { pool } = createWorld();
  expect([pool.owns("mother-1"), pool.owns("mother-2")]).toEqual([true, false]);
});
