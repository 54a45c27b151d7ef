import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { withGpus } from "../backends/choose.ts";
import { containerProfile } from "../backends/profiles.ts";
import type { SandboxSpec } from "../sandbox/sandbox.ts";
import { createFakeSandbox, createTestClock, never, request } from "../testing/fakes.ts";
import { createTestAgent, type TestAgent, testJob } from "../testing/test-agent.ts";
import { createGpus, type GpuLease } from "./gpus.ts";

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

const gpuJob = (gpus: number) => ({ job_type: { ...testJob().job_type, gpus } });

/** What the engine is told of the GPUs of the n-th container: which, and of what kind. */
function requested(t: TestAgent, n: number): unknown {
  const { HostConfig } = containerProfile(t.specs[n]!);
  if (!("DeviceRequests" in HostConfig)) return undefined;
  return HostConfig.DeviceRequests?.map(({ DeviceIDs, Capabilities }) => [DeviceIDs, Capabilities]);
}
const requestOf = (...ids: string[]): unknown => [[ids, [["gpu"]]]];

test("each GPU is one job's at a time, and the next one's when its container is gone", async () => {
  await using t = await createTestAgent({ slots: 4, gpuIds: ["0", "GPU-b"] });
  t.assumeGoodEngine();
  const first = t.begin(gpuJob(1));
  const second = t.begin(gpuJob(1));
  const [one, two] = [await t.sandbox(0), await t.sandbox(1)];
  expect([requested(t, 0), requested(t, 1)]).toEqual([requestOf("0"), requestOf("GPU-b")]);
  expect(t.deps.gpus!.free()).toBe(0);

  const third = t.begin(gpuJob(2));
  const without = t.begin(gpuJob(0));
  const plain = await t.sandbox(2);
  expect(requested(t, 2)).toBeUndefined();

  two.finish();
  await second.ended;
  expect(t.specs).toHaveLength(3);
  one.finish();
  await first.ended;
  const both = await t.sandbox(3);
  expect(requested(t, 3)).toEqual(requestOf("GPU-b", "0"));
  both.finish();
  plain.finish();
  await Promise.all([third.ended, without.ended]);
  await expect.poll(() => t.deps.gpus!.free(), { timeout: 30_000 }).toBe(2);
});

test("a job that asks for more GPUs than there are fails in words, and keeps none", async () => {
  await using t = await createTestAgent({ gpuIds: ["0"] });
  t.assumeGoodEngine();
  await t.begin(gpuJob(2)).ended;
  const { json } = await t.api.request("/result");
  expect(JSON.stringify(json)).toContain("asks for 2 GPUs, and the agent has 1 (agent_gpus)");
  expect(t.specs).toEqual([]);
  expect(t.deps.gpus!.free()).toBe(1);
});
