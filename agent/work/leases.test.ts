import { randomUUID } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { beforeEach, describe, expect, it } from "vitest";
import { createTestClock, type TestClock } from "../testing/fakes.ts";
import { t, testJob, useTestAgent } from "../testing/test-agent.ts";
import { createChangeSignal } from "../waiting.ts";
import { createCrashReporter, createLeases, type Leases } from "./leases.ts";

describe("leases", () => {
  const intervals = { poll_wait_s: 25, lease_ttl_s: 30, renew_every_s: 8 };
  const nothing = { cancel: [], lost: [], intervals };

  let clock: TestClock;
  let leases: Leases;

  beforeEach(() => {
    clock = createTestClock();
    leases = createLeases({ clock, changes: createChangeSignal() }, 2, intervals);
  });

  it("counts its free slots", () => {
    const lease = leases.take(testJob(), clock.nowMs());
    expect(leases.free()).toBe(1);
    expect(leases.ids()).toEqual([lease.job.lease_id]);
    leases.end(lease);
    expect(leases.free()).toBe(2);
    expect(leases.ids()).toEqual([]);
  });

  it("gives up a lease before it can have expired, counted from the request that got it", async () => {
    const askedMs = clock.nowMs();
    clock.advance(10_000);
    const { drop } = leases.take(testJob(), askedMs);
    await clock.sleeping(17_000);
    clock.advance(16_999);
    await new Promise(setImmediate);
    expect(drop.signal.aborted).toBe(false);
    clock.advance(1);
    await new Promise(setImmediate);
    expect(drop.signal.reason).toMatchObject({ message: "not renewed in time" });
  });

  it("calls a lease fresh while there is time to renew it", () => {
    const askedMs = clock.nowMs();
    clock.advance(19_500);
    expect(leases.isFresh(askedMs)).toBe(true);
    clock.advance(1);
    expect(leases.isFresh(askedMs)).toBe(false);
  });

  it("keeps a renewed lease, counted from the request that renewed it", async () => {
    const { drop, job } = leases.take(testJob(), clock.nowMs());
    clock.advance(8000);
    const askedMs = clock.nowMs();
    clock.advance(5000);
    leases.learn(nothing, [job.lease_id], askedMs);
    clock.advance(14_000);
    await clock.sleeping(8000);
    expect(drop.signal.aborted).toBe(false);
    clock.advance(8000);
    await new Promise(setImmediate);
    expect(drop.signal.aborted).toBe(true);
  });

  it("ignores a late answer to an old request", async () => {
    const askedMs = clock.nowMs();
    const { drop, job } = leases.take(testJob(), askedMs);
    clock.advance(60_000);
    leases.learn(nothing, [job.lease_id], askedMs);
    await new Promise(setImmediate);
    expect(drop.signal.aborted).toBe(true);
  });

  it("knows which leases are being cancelled, and does not list lost ones", () => {
    const [a, b] = [testJob(), testJob()].map((job) => leases.take(job, clock.nowMs()));
    const [cancelled, lost] = [a!.job.lease_id, b!.job.lease_id];
    leases.learn(
      { cancel: [cancelled], lost: [lost], intervals },
      [cancelled, lost],
      clock.nowMs(),
    );
    expect(a!.cancel.signal.reason).toMatchObject({ by: "request" });
    expect(leases.cancelling()).toEqual([cancelled]);
    expect(b!.drop.signal.aborted).toBe(true);
    expect(leases.ids()).toEqual([cancelled]);
    expect(leases.has(lost)).toBe(true);
    expect(leases.free()).toBe(0);
  });

  it("ignores what the API says about leases that are over", () => {
    leases.learn({ cancel: ["x"], lost: ["y"], intervals }, ["x", "y"], clock.nowMs());
    expect(leases.free()).toBe(2);
  });
});

describe("report crash", () => {
  useTestAgent();
  beforeEach(() => {
    reported = 0;
  });

  let reported = 0;
  const reporter = () =>
    createCrashReporter(
      { ...t.deps, onReported: () => (reported += 1) },
      new AbortController().signal,
    );

  it("reports each crash once, and says when the API has it", async () => {
    const crashed = randomUUID();
    const report = reporter();
    t.api.answer("/leave", { status: 503 }, "cut");
    expect(report(crashed)).toBe(false);
    while (!report(crashed)) await nextTurn();
    expect(t.api.count("/leave")).toBe(3);
    expect(reported).toBe(1);
    expect((await t.api.request("/leave", 3)).json).toEqual({ agent_id: crashed, crashed: true });
  });

  it("gives up if the API rejects the report", async () => {
    const report = reporter();
    const crashed = randomUUID();
    t.api.answer("/leave", { status: 403 });
    while (!report(crashed)) await nextTurn();
    expect(t.api.count("/leave")).toBe(1);
  });
});
