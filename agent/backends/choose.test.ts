import { getLogger } from "@logtape/logtape";
import { describe, expect, test, vi } from "vitest";
import type { InputFile, SandboxJob, WantedPackages } from "../sandbox/job.ts";
import { EngineError, type Sandbox } from "../sandbox/sandbox.ts";
import { job } from "../testing/fake-supervisor.ts";
import { createPoolWorld, idOf, never, request } from "../testing/fakes.ts";
import { chooseSandbox } from "./choose.ts";
import type { Forks } from "./forks.ts";
import { NotForkable } from "./mother.ts";

const slots = 2;

/** A pool with forks that are told what to do. */
function createWorld(
  fork: () => Promise<void> = () => Promise.resolve(),
  { problem = null as string | null, idleMs = 0 } = {},
) {
  const world = createPoolWorld(0);
  const opened: Sandbox[] = [];
  const closed: Sandbox[] = [];
  const steps: string[] = [];
  /** The job that was sent ahead to each fork. */
  const ahead: (SandboxJob | undefined)[] = [];
  const forks: Forks = {
    probed: () => Promise.resolve(),
    problem: () => problem,
    prepare: () => Promise.resolve(new Map()),
    unpack: () => Promise.resolve(),
    borrow: () => {
      steps.push("borrow");
      return Promise.resolve({
        name: "a-bundle",
        giveBack: (how) => steps.push(how ?? "give back"),
      });
    },
    borrowFile: (_tenant, { name }) => {
      steps.push(`borrow ${name}`);
      return Promise.resolve({
        name: `bundle of ${name}`,
        giveBack: (how) => steps.push(how ?? `give back ${name}`),
      });
    },
    open: async (_spec, _signal, provided, job) => {
      ahead.push(job);
      const { packages, files } = provided ?? { packages: null, files: [] };
      if (packages) steps.push(`open with ${packages.bundle} for ${packages.requirements.join()}`);
      for (const { name, bundle } of files) steps.push(`mount ${bundle} at ${name}`);
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
    close: () => Promise.resolve(void steps.push("close")),
  };
  const pool = chooseSandbox({
    containers: world.pool,
    forks,
    mustFork: false,
    slots,
    idleMs,
    clock: world.clock,
    log: getLogger("test"),
  });
  return { pool, world, forks, opened, closed, steps, ahead };
}

const wanted: WantedPackages = {
  requirements: ["a"],
  tenant: "default",
  key: "key",
  from: { pipEnv: {}, files: {}, serve: () => {}, keep: null, maxBytes: null },
  wait: (install) => install(never),
  took: () => {},
};

test("a job gets a fork, which ends when it is given back", async () => {
  const { pool, closed } = createWorld();
  const sandbox = await pool.acquire(request(), never);
  expect(sandbox.containerId).toBe("fork-1");
  expect(pool.stats()).toMatchObject([{ ready: 1, starting: 0, in_use: 1 }]);
  await pool.giveBack(sandbox);
  await pool.giveBack(sandbox).catch(() => {});
  expect(closed).toEqual([sandbox]);
  expect(pool.stats()).toMatchObject([{ ready: 2, starting: 0, in_use: 0 }]);
});

test("with more forks in use than slots, none is said to be ready", async () => {
  const { pool } = createWorld();
  const all = await Promise.all([0, 1, 2].map(() => pool.acquire(request(), never)));
  expect(pool.stats()).toMatchObject([{ ready: 0, in_use: 3 }]);
  await Promise.all(all.map((sandbox) => pool.giveBack(sandbox)));
});

test("a job whose lease is dropped ends at once", async () => {
  const { pool, closed } = createWorld();
  const sandbox = await pool.acquire(request(), never);
  pool.discard(sandbox);
  pool.discard(sandbox);
  expect(closed).toEqual([sandbox]);
});

describe("a container of the pool serves", () => {
  test.each([
    ["a job under gVisor", { runtime: "runsc" }],
    ["a job with a network", { network: "bridge" as const }],
    ["a job with a GPU", { gpus: ["0"] }],
  ])("%s", async (_what, spec) => {
    const { pool, opened, steps } = createWorld();
    const sandbox = await pool.acquire({ ...request(spec), packages: wanted }, never);
    expect(idOf(sandbox)).toBe("container-1");
    expect([opened, steps]).toEqual([[], []]);
    await pool.giveBack(sandbox);
  });

  test("all jobs where forks are not usable", async () => {
    const { pool, opened } = createWorld(undefined, { problem: "no control groups" });
    pool.keepReadyFor(request());
    expect(idOf(await pool.acquire(request(), never))).toBe("container-1");
    expect(opened).toEqual([]);
  });

  test("a job of a kind that cannot be forked", async () => {
    const { pool } = createWorld(() => Promise.reject(new NotForkable("a thread was started")));
    const sandbox = await pool.acquire(request(), never);
    expect(idOf(sandbox)).toBe("container-1");
    await pool.giveBack(sandbox);
  });
});

test("a job finds the packages that it wants in its fork, for as long as it has that", async () => {
  const { pool, steps } = createWorld();
  const sandbox = await pool.acquire({ ...request(), packages: wanted }, never);
  expect(steps).toEqual(["borrow", "open with a-bundle for a"]);
  await pool.giveBack(sandbox);
  await vi.waitFor(() => expect(steps.at(-1)).toBe("give back"));
});

test("packages that a fork did not find are looked for anew", async () => {
  const lost = new EngineError("other", "its packages were removed");
  const { pool, steps } = createWorld(() => Promise.reject(lost));
  const acquired = pool.acquire({ ...request(), packages: wanted }, never);
  await expect(acquired).rejects.toThrow("its packages were removed");
  expect(steps.at(-1)).toBe("missing");
});

test("large files are mounted in a fork, and lent for as long as it lives; small ones are sent", async () => {
  const { pool, steps } = createWorld();
  const file = (name: string, sizeBytes: number) => ({ name, sizeBytes, sha256: name, path: name });
  const files = [file("small", 10), file("large", 1024 ** 2)];
  const spec = { memoryBytes: 512 * 1024 ** 2 };
  const sandbox = await pool.acquire({ ...request(spec), files }, never);
  expect(steps).toEqual(["borrow large", "mount bundle of large at large"]);
  await pool.giveBack(sandbox);
  await vi.waitFor(() => expect(steps.at(-1)).toBe("give back large"));
});

test("files are given back if the fork cannot be opened", async () => {
  const { pool, steps } = createWorld(() => Promise.reject(new Error("cancelled")));
  const files = [{ name: "large", sizeBytes: 1024 ** 2, sha256: "a", path: "a" }];
  await expect(pool.acquire({ ...request(), files }, never)).rejects.toThrow("cancelled");
  expect(steps.at(-1)).toBe("give back large");
});

test("it reports that it mounts files where jobs are forked", () => {
  expect(createWorld().pool.mountsFiles()).toBe(true);
  expect(createWorld(undefined, { problem: "no control groups" }).pool.mountsFiles()).toBe(false);
});

test("nothing is installed for a kind that cannot be forked", async () => {
  const { pool, forks, steps } = createWorld();
  Object.assign(forks, { prepare: () => Promise.reject(new NotForkable("a thread")) });
  const sandbox = await pool.acquire({ ...request(), packages: wanted }, never);
  expect(idOf(sandbox)).toBe("container-1");
  expect(steps).toEqual([]);
  await pool.giveBack(sandbox);
});

test("a failure of the engine is the job's, not a reason for a container", async () => {
  const { pool } = createWorld(() => Promise.reject(new EngineError("other", "the mother ended")));
  await expect(pool.acquire(request(), never)).rejects.toThrow("the mother ended");
  expect(pool.stats()).toMatchObject([{ starting: 0, in_use: 0 }]);
});

test("what is expected is opened ahead, and so is the next fork of a kind whose job has ended", async () => {
  const { pool, opened, closed } = createWorld(undefined, { idleMs: 60_000 });
  pool.keepReadyFor(request());
  await pool.giveBack(await pool.acquire(request(), never));
  await vi.waitFor(() => expect([opened.length, closed.length]).toEqual([2, 1]));
  await pool.close();
  expect(closed).toHaveLength(2);
});

test("a job goes ahead to a fork that is opened for it alone, unless files have to come first", async () => {
  const small = { name: "small", sizeBytes: 10, sha256: "a", path: "a" };
  const take = async ({ pool }: ReturnType<typeof createWorld>, files: readonly InputFile[] = []) =>
    pool.giveBack(
      await pool.acquire({ ...request({ memoryBytes: 512 << 20 }), files }, never, job),
    );
  const without = createWorld();
  await take(without);
  await take(without, [small]);
  expect(without.ahead).toEqual([job, undefined]);

  const ready = createWorld(undefined, { idleMs: 60_000 });
  await take(ready);
  // The fork that is kept ready for the next job knows none.
  await vi.waitFor(() => expect(ready.ahead).toEqual([job, undefined]));
  await ready.pool.close();
});

test("a mother outlives the end of the pool for as long as a job runs in it", async () => {
  const { pool, steps } = createWorld();
  const sandbox = await pool.acquire(request(), never);
  await pool.close();
  expect(steps).toEqual([]);
  await pool.giveBack(sandbox);
  await pool.close();
  expect(steps).toEqual(["close"]);
});

test("mothers are spared by the reaper", () => {
  const { pool } = createWorld();
  expect([pool.owns("mother-1"), pool.owns("mother-2")]).toEqual([true, false]);
});
