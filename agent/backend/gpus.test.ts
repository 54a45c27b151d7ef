import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { withGpus } from "./gpu-sandbox.ts";
import { createGpus, type GpuLease } from "./gpus.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import { createFakeSandbox } from "../testing/fake-sandbox.ts";
import { never, request } from "../testing/pool-world.ts";
import { createTestClock } from "../testing/test-clock.ts";

const settle = () => new Promise(setImmediate);

const step = fc.oneof(
  fc.record({ do: fc.constant("lease" as const), count: fc.integer({ min: 0, max: 4 }) }),
  fc.record({ do: fc.constantFrom("end", "hold", "let go"), which: fc.nat(20) }),
);

test("whatever happens, no GPU is two jobs', and all come back", async () => {
  const property = fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
    const ids = ["0", "1", "2", "GPU-ab"];
    const gpus = createGpus(ids, () => {});
    const leases: { lease: GpuLease; count: number; ids?: readonly string[]; over: boolean }[] = [];
    const holds: { ids: readonly string[]; letGo: () => void; over: boolean }[] = [];
    for (const one of steps) {
      if (one.do === "lease") {
        const entry = { lease: gpus.lease(one.count), count: one.count, over: false };
        leases.push(entry);
        void entry.lease.ids.then((granted) => Object.assign(entry, { ids: granted }));
      } else if (one.do === "let go") {
        const hold = holds[one.which];
        if (hold) hold.letGo();
        if (hold) hold.over = true;
      } else {
        const entry = leases[one.which];
        if (entry && one.do === "end") {
          entry.lease[Symbol.dispose]();
          entry.over = true;
        } else if (entry?.ids && !entry.over) {
          holds.push({ ids: entry.ids, letGo: gpus.hold(entry.ids), over: false });
        }
      }
      await settle();
      const granted = leases.filter((entry) => entry.ids && !entry.over);
      const kept = holds.filter(({ over }) => !over).map((hold) => hold.ids);
      const inUse = new Set([...granted.map((entry) => entry.ids!), ...kept]);
      const used = [...inUse].flat();
      expect(new Set(used).size, "each has one owner").toBe(used.length);
      for (const entry of granted) expect(entry.ids).toHaveLength(entry.count);
      const asked = leases.filter((entry) => !entry.ids && !entry.over);
      const wanted = asked.reduce((sum, { count }) => sum + count, 0);
      expect(gpus.free()).toBe(Math.max(0, ids.length - used.length - wanted));
      const first = asked[0]?.count ?? Infinity;
      expect(first).toBeGreaterThan(ids.length - used.length);
    }
    for (const { lease } of leases) lease[Symbol.dispose]();
    for (const { letGo } of holds) letGo();
    expect(gpus.free()).toBe(ids.length);
  });
  await fc.assert(property, { numRuns: 100 });
});

test("who asks for many is not passed by who asks for few", async () => {
  const gpus = createGpus(["0", "1"], () => {});
  const first = gpus.lease(1);
  const many = gpus.lease(2);
  const few = gpus.lease(1);
  expect(gpus.free()).toBe(0);
  first[Symbol.dispose]();
  expect(await many.ids).toEqual(["1", "0"]);
  many[Symbol.dispose]();
  expect(await few.ids).toHaveLength(1);
  expect(await gpus.lease(0).ids).toEqual([]);
});

describe("a container", () => {
  const world = () => {
    const end = new AbortController();
    const clock = createTestClock();
    const gpus = createGpus(["0"], () => {});
    const sandbox = createFakeSandbox();
    const specWith = async (lease: GpuLease): Promise<SandboxSpec> =>
      request({ gpus: await lease.ids }).spec;
    return { end, clock, gpus, sandbox, specWith };
  };

  test("keeps its GPUs until it is removed, beyond the end of its job", async () => {
    const { end, clock, gpus, sandbox, specWith } = world();
    const lease = gpus.lease(1);
    const start = withGpus(() => Promise.resolve(sandbox), gpus, clock, end.signal);
    const started = await start(await specWith(lease), never);
    lease[Symbol.dispose]();
    expect(gpus.free()).toBe(0);
    await started.close();
    expect(gpus.free()).toBe(1);
  });

  test("that could not be started leaves them to the job, which may try again", async () => {
    const { end, clock, gpus, specWith } = world();
    const lease = gpus.lease(1);
    const start = withGpus(() => Promise.reject(new Error("no")), gpus, clock, end.signal);
    await expect(start(await specWith(lease), never)).rejects.toThrow("no");
    expect(gpus.free()).toBe(0);
    lease[Symbol.dispose]();
    expect(gpus.free()).toBe(1);
  });

  test("that the engine does not remove keeps them, until it does", async () => {
    const { end, clock, gpus, sandbox, specWith } = world();
    let closes = 0;
    const close = () => ((closes += 1) < 3 ? Promise.reject(new Error("busy")) : sandbox.close());
    const stubborn = { ...sandbox, close };
    const lease = gpus.lease(1);
    const start = withGpus(() => Promise.resolve(stubborn), gpus, clock, end.signal);
    const started = await start(await specWith(lease), never);
    lease[Symbol.dispose]();
    await expect(started.close()).rejects.toThrow("busy");
    for (const n of [1, 2]) {
      expect(gpus.free()).toBe(0);
      await settle();
      expect(closes, "it waits before it tries again").toBe(n);
      clock.advance(60_000);
      await settle();
    }
    await sandbox.closed;
    await settle();
    expect(gpus.free()).toBe(1);
    end.abort();
  });
});
