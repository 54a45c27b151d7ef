import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { configure, reset } from "@logtape/logtape";
import { beforeEach, describe, expect, it } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import type { PollReply } from "../../shared/wire/leases.ts";
import { request as testOrder } from "../testing/fakes.ts";
import {
  goodEngine,
  replaceTestAgent,
  type RunningAgent,
  t,
  testBuild,
  testJob,
  useTestAgent,
} from "../testing/test-agent.ts";
import { MISSING_MS } from "./poll.ts";

describe("poll", () => {
  useTestAgent();

  /** Starts the agent and waits until it has a long poll pending, its second. */
  async function runIdle() {
    const agent = t.run();
    await t.api.request("/poll", 2);
    return agent;
  }

  it("polls at once without waiting, then waits long", async () => {
    t.run();
    const first = await t.api.request("/poll", 1);
    expect(first.json).toEqual({
      agent: {
        ...t.deps.agent,
        accepts: { ...t.deps.agent.accepts, inputs: "frames", languages: {} },
      },
      slots: 2,
      gpus: { total: 0, free: 0 },
      warm: 0,
      pool: [],
      engine: { ...goodEngine, errors: [], fork_problem: null },
      breaker: { state: "closed", failure_count: 0, success_count: 0, last_failure: null },
      leases: [],
      builds: [],
      images: [],
      cancelling: [],
      watching: [],
      free_slots: 2,
      free_builds: 1,
      is_new: true,
      wait_s: 0,
    });
    expect((await t.api.request("/poll", 2)).json).toMatchObject({
      free_slots: 2,
      is_new: false,
      wait_s: 16,
    });
  });

  it("never asks for more than its free slots", async () => {
    const jobs = [testJob(), testJob(), testJob(), testJob(), testJob()];
    const { stop, ended } = await runIdle();
    t.api.offer(...jobs);
    for (let n = 0; n < jobs.length; n++) {
      (await t.sandbox(n)).finish();
      await t.api.request("/result", n + 1);
    }
    stop();
    await ended;
    const polls = t.api.received.filter(({ path }) => path === "/poll");
    for (const { json } of polls) {
      const { free_slots, leases } = json as { free_slots: number; leases: string[] };
      expect(free_slots + leases.length).toBeLessThanOrEqual(2);
    }
    expect(t.specs).toHaveLength(5);
  });

  it("hands back what the API gives beyond the free slots", async () => {
    const jobs = [testJob(), testJob(), testJob()];
    const { intervals } = t.api;
    const nothing = { cancel: [], lost: [], images_wanted: [], builds: [], keep_ready: [] };
    const body: PollReply = { ...nothing, intervals, jobs };
    t.api.answer("/poll", { status: 200, body });
    t.run();
    const { path, json } = await t.api.request("/release");
    expect(path).toContain(jobs[2]!.lease_id);
    expect(json).toMatchObject({ error: { type: "service_unavailable", phase: "startup" } });
    expect(t.specs).toHaveLength(2);
  });

  it("leaves a build beyond the free slots to a later poll", async () => {
    const builds = [testBuild(), testBuild()];
    const nothing = { cancel: [], lost: [], images_wanted: [], jobs: [], keep_ready: [] };
    const body: PollReply = { ...nothing, intervals: t.api.intervals, builds };
    t.api.answer("/poll", { status: 200, body });
    t.run();
    expect((await t.api.request("/poll", 2)).json).toMatchObject({
      builds: [builds[0]!.lease_id],
      free_builds: 0,
    });
  });

  it("polls again as soon as a slot is free, if it had none to offer", async () => {
    await runIdle();
    t.api.offer(testJob(), testJob());
    const full = await t.api.request("/poll", 3);
    expect(full.json).toMatchObject({ free_slots: 0 });
    (await t.sandbox(1)).finish();
    expect((await t.api.request("/poll", 4)).json).toMatchObject({ free_slots: 1 });
    await full.hungUp;
  });

  it.each([
    ["slots", {}, { free_slots: 1 }],
    ["slots and sessions", { maxSessions: 2 }, { free_slots: 1, free_sessions: 2 }],
  ])("keeps a pending poll that already offers %s", async (_what, options, offered) => {
    await replaceTestAgent(options);
    await runIdle();
    t.api.offer(testJob());
    const pending = await t.api.request("/poll", 3);
    expect(pending.json).toMatchObject(offered);
    (await t.sandbox(0)).finish();
    await t.deps.changes.waitUntil(() => t.deps.leases.free() === 2);
    t.api.offer(testJob());
    await t.sandbox(1);
    expect(pending.isHungUp()).toBe(false);
  });

  it("leaves a job of a late answer to the next poll, which renews its lease", async () => {
    const job = testJob();
    await runIdle();
    t.clock.advance(20_000);
    t.api.offer(job);
    expect((await t.api.request("/poll", 3)).json).toMatchObject({ leases: [], free_slots: 2 });
    expect(t.specs).toHaveLength(0);
    await t.sandbox(0);
    expect((await t.api.request("/poll", 4)).json).toMatchObject({ leases: [job.lease_id] });
  });

  it("runs a job that is delivered twice only once", async () => {
    const job = testJob();
    await runIdle();
    t.api.offer(job);
    const sandbox = await t.sandbox(0);
    t.api.offer(job);
    await t.api.request("/poll", 4);
    expect(t.specs).toHaveLength(1);
    sandbox.finish();
    await t.api.request("/result");
    expect(t.api.count("/release")).toBe(0);
  });

  it("cancels the run that the API wants cancelled, and confirms it", async () => {
    const [a, b] = [testJob(), testJob()];
    await runIdle();
    t.api.offer(a, b);
    await t.running();
    await t.api.request("/poll", 3);
    t.api.cancel.push(a.lease_id);
    t.api.wake();
    const { path, json } = await t.api.request("/result");
    expect(path).toContain(a.lease_id);
    expect(json).toMatchObject({ status: "cancelled", error: { type: "cancelled" } });
    expect(t.api.count("/result")).toBe(1);
  });

  it("drops the run whose lease is lost, and posts nothing for it", async () => {
    const job = testJob();
    await runIdle();
    t.api.offer(job);
    const { sandbox } = await t.running();
    await t.api.request("/poll", 3);
    t.api.lost.push(job.lease_id);
    t.api.wake();
    await sandbox.closed;
    const { json } = await t.api.request("/poll", 4);
    expect(json).toMatchObject({ leases: [], free_slots: 1 });
    expect(t.api.count("/result") + t.api.count("/release")).toBe(0);
  });

  describe("when polls fail", () => {
    it("waits longer each time, and logs the outage once, and its end once", async () => {
      const lines: string[] = [];
      await configure({
        reset: true,
        sinks: { lines: ({ message }) => void lines.push(message.join("")) },
        loggers: [
          { category: "airlock", lowestLevel: "info", sinks: ["lines"] },
          { category: ["logtape", "meta"], lowestLevel: "warning", sinks: ["lines"] },
        ],
      });
      t.api.answer("/poll", { status: 503 }, "cut", { status: 500 });
      t.run();
      for (const capMs of [250, 500, 1000]) {
        t.clock.advance(await t.clock.sleeping(capMs / 2, capMs));
      }
      expect((await t.api.request("/poll", 5)).json).toMatchObject({ wait_s: 16 });
      await reset();
      expect(lines.filter((line) => !line.startsWith("engine "))).toEqual([
        expect.stringMatching(/^poll failed, next in 0\.\d s: POST \/poll answered 503/),
        expect.stringMatching(/^the API answers again, after \d\.\d s$/),
      ]);
    });

    it("polls again soon after one was cut off, each time", async () => {
      t.run();
      for (const n of [2, 3, 4]) {
        await t.api.request("/poll", n);
        t.clock.advance(10_000);
        t.api.cut();
        t.clock.advance(await t.clock.sleeping(125, 250));
      }
      expect((await t.api.request("/poll", 5)).json).toMatchObject({ wait_s: 16 });
    });

    it.each([
      [429, "7", 7000],
      [503, "3600", 30_000],
    ])(
      "waits as long as the answer asks, at most half a minute: %d, %s s",
      async (status, seconds, waitMs) => {
        t.api.answer("/poll", { status, headers: { "retry-after": seconds } });
        t.run();
        await t.clock.sleeping(waitMs);
        expect(t.api.count("/poll")).toBe(1);
        t.clock.advance(waitMs);
        await t.api.request("/poll", 2);
      },
    );

    it("goes on after a refusal that is not the API's", async () => {
      t.api.answer("/poll", { status: 403, body: "<html>", isProxy: true });
      t.run();
      t.clock.advance(await t.clock.sleeping(125, 250));
      expect((await t.api.request("/poll", 2)).json).toMatchObject({ is_new: true });
    });

    it.each([401, 403])("ends the agent on %d, with the API's reason", async (status) => {
      const detail = "unknown agent token";
      t.api.answer("/poll", { status, body: { title: "no", status, detail, correlation_id: "c" } });
      const { ended } = t.run();
      await expect(ended).rejects.toMatchObject({
        kind: "unauthorized",
        message: `POST /poll answered ${status}: ${detail}`,
      });
    });
  });

  describe("the engine", () => {
    it("is reported at once when it is gone, and no job is taken until it is back", async () => {
      await runIdle();
      const offering = await t.api.request("/poll", 2);
      t.health = new Error("connect ENOENT");
      t.deps.engine.checkSoon();
      const down = await t.api.request("/poll", 3);
      await offering.hungUp;
      expect(down.json).toMatchObject({ free_slots: 0, engine: { available: false } });
      t.health = goodEngine;
      t.deps.engine.checkSoon();
      expect((await t.api.request("/poll", 4)).json).toMatchObject({ free_slots: 2 });
    });

    it("gets no job while its breaker is open, and one at a time while half open", async () => {
      await runIdle();
      for (let n = 0; n < 5; n++) t.deps.engine.recordFailure();
      const open = await t.api.request("/poll", 3);
      expect(open.json).toMatchObject({ free_slots: 0, breaker: { state: "open" } });

      t.clock.advance(30_000);
      t.deps.engine.checkSoon();
      const halfOpen = await t.api.request("/poll", 4);
      expect(halfOpen.json).toMatchObject({ free_slots: 1, breaker: { state: "half_open" } });
      t.api.offer(testJob(), testJob());
      expect((await t.api.request("/poll", 5)).json).toMatchObject({ free_slots: 0 });
      (await t.sandbox(0)).finish();
      (await t.sandbox(1)).finish();
      await t.api.request("/result", 2);
      expect(t.deps.engine.breaker().state).toBe("closed");
    });
  });

  it("reports changes of its pool within a second", async () => {
    await runIdle();
    const sandbox = await t.deps.sandboxes.acquire(testOrder(), new AbortController().signal);
    t.deps.changes.notify();
    await t.clock.sleeping(1000);
    expect(t.api.count("/poll")).toBe(2);
    t.clock.advance(1000);
    const kind = { job_type: "default", runtime: null, ready: 0, starting: 0, in_use: 1 };
    expect((await t.api.request("/poll", 3)).json).toMatchObject({ pool: [kind] });
    await t.deps.sandboxes.giveBack(sandbox);
  });
});

describe("take", () => {
  let agent: RunningAgent;
  useTestAgent({ slots: 1 });
  beforeEach(async () => {
    agent = t.run();
    await t.api.request("/poll", 2);
  });

  /** Fills the only slot and has the answer to its result bring a job. */
  async function fillAndAnswerWithNext() {
    const next = testJob();
    t.api.offer(testJob());
    t.api.answer("/result", { status: 200, body: { jobs: [next] } });
    const { sandbox } = await t.running();
    const poll = await t.api.request("/poll", 3);
    expect(poll.json).toMatchObject({ free_slots: 0 });
    sandbox.finish();
    return { next, poll };
  }

  it("asks for the next job with the result while all slots are in use, and runs it at once", async () => {
    const { next, poll } = await fillAndAnswerWithNext();
    const { headers } = await t.api.request("/result", 1);
    expect(headers["x-airlock-take"]).toBe("1");
    const { job } = await t.running(1);
    expect(job.code).toBe(next.code);
    expect(t.deps.leases.ids()).toEqual([next.lease_id]);
    expect(poll.isHungUp()).toBe(false);
    (await t.sandbox(1)).finish();
    expect((await t.api.request("/result", 2)).path).toContain(next.lease_id);
    expect(t.api.count("/poll")).toBe(3);
  });

  it("polls again when such a job takes long, so that it learns of a cancellation", async () => {
    const { next, poll } = await fillAndAnswerWithNext();
    await t.running(1);
    await t.clock.sleeping(MISSING_MS);
    t.clock.advance(MISSING_MS);
    expect((await t.api.request("/poll", 4)).json).toMatchObject({ leases: [next.lease_id] });
    await poll.hungUp;
  });

  it("hands a job back instead of running it a second time under the same lease", async () => {
    const { next } = await fillAndAnswerWithNext();
    const { sandbox } = await t.running(1);
    sandbox.finish();
    await t.api.request("/poll", 4);
    t.api.answer("/release", { status: 409 });
    t.api.offer(next);
    expect((await t.api.request("/release")).path).toContain(next.lease_id);
    t.api.offer(testJob());
    await t.running(2);
    expect(t.specs).toHaveLength(3);
  });

  it("does not run a job twice that a poll or another result has brought", async () => {
    await replaceTestAgent();
    t.run();
    const next = { ...testJob(), code: "print('twice?')" };
    const brings = { status: 200, body: { jobs: [next] } };
    t.api.answer("/result", brings, brings);
    t.api.offer(testJob(), testJob());
    const [first, second] = [await t.sandbox(0), await t.sandbox(1)];
    await Promise.all([first.running, second.running]);
    first.finish();
    await t.running(2);
    second.finish();
    await t.api.request("/result", 2);
    await t.deps.changes.waitUntil(() => t.deps.leases.free() === 1);
    t.api.offer(testJob());
    expect((await t.running(3)).job.code).not.toBe(next.code);
    expect(t.deps.leases.ids()).toHaveLength(2);
  });

  it("asks for no job when it stops", async () => {
    t.api.offer(testJob());
    const { sandbox } = await t.running();
    agent.stop();
    sandbox.finish();
    expect((await t.api.request("/result")).headers).not.toHaveProperty("x-airlock-take");
    await agent.ended;
  });

  function oneFile() {
    const path = join(tempFolder(), "a");
    writeFileSync(path, "x");
    const sha256 = createHash("sha256").update("x").digest("hex");
    return [{ name: "a", sizeBytes: 1, sha256, path }];
  }

  it("tells the API of a slot that an upload leaves, which only the agent knows, though another is free", async () => {
    await replaceTestAgent();
    t.run();
    await t.api.request("/poll", 2);
    t.api.answer("/artifacts/a", "silence");
    t.api.offer(testJob());
    const { sandbox } = await t.running();
    const poll = await t.api.request("/poll", 3);
    expect(poll.json).toMatchObject({ free_slots: 1 });
    sandbox.finish({ artifacts: oneFile() });
    expect((await t.api.request("/poll", 4)).json).toMatchObject({ free_slots: 2 });
    await poll.hungUp;
  });

  it("gives the slot to another job while files are uploaded, to as many as it has slots", async () => {
    const artifacts = oneFile();
    t.api.answer("/artifacts/a", "silence", "silence");
    t.api.offer(testJob());
    (await t.sandbox(0)).finish({ artifacts });
    await t.api.request("/artifacts/a", 1);
    await t.deps.changes.waitUntil(() => t.deps.leases.free() === 1);
    t.api.offer(testJob());
    const { sandbox: second } = await t.running(1);
    expect(t.deps.leases.free()).toBe(0);
    expect(t.deps.leases.ids()).toHaveLength(2);
    second.finish({ artifacts });
    await t.api.request("/artifacts/a", 2);
    expect(t.deps.leases.free()).toBe(0);
  });

  it("asks for no job while a poll with a free slot is pending", async () => {
    await replaceTestAgent();
    t.run();
    t.api.offer(testJob());
    const { sandbox } = await t.running();
    sandbox.finish();
    expect((await t.api.request("/result")).headers).not.toHaveProperty("x-airlock-take");
  });
});
