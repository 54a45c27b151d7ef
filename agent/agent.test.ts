import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { EventEmitter, getEventListeners, once } from "node:events";
import { reset } from "@logtape/logtape";
import { beforeEach, describe, expect, it, test } from "vitest";
import { Config } from "../shared/config/config.ts";
import { logLines } from "../shared/testing/test-file.ts";
import { intervalsOf, type RenewReply } from "../shared/wire/leases.ts";
import { listenForStop } from "./agent.ts";
import { hostScope, isAlive, showAlive } from "./host/alive.ts";
import { createTestClock } from "./testing/fakes.ts";
import { type RunningAgent, t, testJob, useTestAgent } from "./testing/test-agent.ts";
import { OVER, systemClock } from "./waiting.ts";

describe("agent", () => {
  let agent: RunningAgent;
  useTestAgent();
  beforeEach(async () => {
    agent = t.run();
    await t.api.request("/poll", 2);
  });

  /** Gives the agent a job and waits until its code runs and the next poll hangs. */
  async function runJob() {
    const job = testJob();
    t.api.offer(job);
    const { sandbox } = await t.running();
    await t.api.request("/poll", 3);
    return { job, sandbox };
  }

  async function renewalDue(): Promise<void> {
    await t.clock.sleeping(8000);
    t.clock.advance(8000);
  }

  describe("renewals", () => {
    it("go out on their own timer while a poll hangs", async () => {
      const { job } = await runJob();
      await renewalDue();
      const first = await t.api.request("/renew", 1);
      expect(first.json).toMatchObject({ agent: t.deps.agent, leases: [job.lease_id], slots: 2 });
      expect(first.json).not.toHaveProperty("free_slots");
      await renewalDue();
      await t.api.request("/renew", 2);
      expect(t.api.count("/poll")).toBe(3);
    });

    it("follow the intervals that the API sends", async () => {
      t.api.intervals = { poll_wait_s: 3, lease_ttl_s: 12, renew_every_s: 2 };
      await runJob();
      await renewalDue();
      await t.clock.sleeping(2000);
      expect((await t.api.request("/poll", 3)).json).toMatchObject({ wait_s: 3 });
    });

    it("bring cancellations and losses too", async () => {
      const { job } = await runJob();
      t.api.answer("/renew", {
        status: 200,
        body: {
          cancel: [job.lease_id],
          lost: [],
          images_wanted: [],
          intervals: t.api.intervals,
        } satisfies RenewReply,
      });
      await renewalDue();
      expect((await t.api.request("/result")).json).toMatchObject({ status: "cancelled" });
    });

    it("that fail are repeated sooner and logged once", async () => {
      const lines = await logLines("warning");
      await runJob();
      t.api.answer("/renew", { status: 503 }, "cut");
      await renewalDue();
      t.clock.advance(await t.clock.sleeping(250, 500));
      t.clock.advance(await t.clock.sleeping(500, 999));
      await t.api.request("/renew", 3);
      expect(await t.clock.sleeping(8000)).toBe(8000);
      await reset();
      expect(lines).toEqual([expect.stringMatching(/^renewal failed: POST \/renew answered 503/)]);
    });

    it("that nobody answers stop the work before the lease can have expired, and nothing is posted", async () => {
      const { sandbox } = await runJob();
      t.api.answer("/renew", "silence");
      await t.clock.sleeping(27_000);
      t.clock.advance(26_999);
      await t.api.request("/renew", 1);
      expect(t.deps.leases.ids()).toHaveLength(1);
      t.clock.advance(1);
      await sandbox.closed;
      await t.deps.changes.waitUntil(() => t.deps.leases.free() === 2);
      expect(t.api.count("/result") + t.api.count("/release")).toBe(0);
    });

    it("that nobody answers for 90 s end no running job by default", async () => {
      t.api.intervals = intervalsOf(Config.parse({}));
      const { job, sandbox } = await runJob();
      t.api.answer("/renew", ...Array<"cut">(100).fill("cut"));
      const outageEndsMs = t.clock.nowMs() + 90_000;
      while (t.clock.nowMs() < outageEndsMs) {
        t.clock.advance(500);
        await new Promise(setImmediate);
      }
      await t.api.request("/renew");
      expect(t.deps.leases.ids()).toEqual([job.lease_id]);
      sandbox.finish();
      expect((await t.api.request("/result")).json).toMatchObject({ status: "succeeded" });
    });

    it("that are refused end the agent", async () => {
      const { sandbox } = await runJob();
      t.api.answer("/renew", { status: 401 });
      await renewalDue();
      await expect(agent.ended).rejects.toMatchObject({ kind: "unauthorized" });
      await sandbox.closed;
      expect(t.api.count("/result") + t.api.count("/leave")).toBe(0);
    });
  });

  describe("told to stop", () => {
    it("takes no more work, keeps renewing, lets the job finish, and says goodbye", async () => {
      const { job, sandbox } = await runJob();
      const pending = await t.api.request("/poll", 3);
      agent.stop();
      await pending.hungUp;
      await renewalDue();
      expect((await t.api.request("/renew")).json).toMatchObject({ leases: [job.lease_id] });
      sandbox.finish();
      await agent.ended;
      expect(t.api.received.slice(-2).map(({ path }) => path)).toEqual([
        `/leases/${job.lease_id}/result`,
        "/leave",
      ]);
      expect(t.api.received.at(-1)?.json).toEqual({ agent_id: t.deps.agent.id, crashed: false });
      expect(t.api.count("/poll")).toBe(3);
    });

    it("cancels and reports jobs that outlast the grace period", async () => {
      await runJob();
      agent.stop();
      await t.clock.sleeping(10_000);
      t.clock.advance(10_000);
      await agent.ended;
      expect((await t.api.request("/result")).json).toMatchObject({
        status: "cancelled",
        error: { type: "cancelled", message: "The agent was stopped while the code ran." },
      });
      expect(t.api.count("/leave")).toBe(1);
    });

    it("does not wait for an API that is gone: jobs that outlast the grace period are reported for a limited time only", async () => {
      await runJob();
      t.api.answer("/result", "silence");
      agent.stop();
      t.clock.advance(await t.clock.sleeping(10_000));
      await t.api.request("/result");
      t.clock.advance(await t.clock.sleeping(15_000));
      await expect(agent.ended).resolves.toBe(true);
    });

    it("ends even if its goodbye is not answered", async () => {
      t.api.answer("/leave", "silence");
      agent.stop();
      await t.api.request("/leave");
      await t.clock.sleeping(3000);
      t.clock.advance(3000);
      await expect(agent.ended).resolves.toBe(false);
    });

    it("a second time, removes its containers, posts nothing and ends", async () => {
      const { sandbox } = await runJob();
      agent.stop();
      await t.clock.sleeping(10_000);
      agent.abort();
      await sandbox.closed;
      await agent.ended;
      expect(t.api.count("/result") + t.api.count("/release") + t.api.count("/leave")).toBe(0);
    });
  });
});

/** What has been asked for after each event; a number lets milliseconds pass. */
function after(...events: (string | number)[]) {
  const process = new EventEmitter();
  const clock = createTestClock();
  const { stop, abort } = listenForStop(process, clock);
  for (const event of events) {
    if (typeof event === "number") clock.advance(event);
    else process.emit(event, event);
  }
  return { stop: stop.aborted, abort: abort.aborted };
}

it.each([
  [[], false, false],
  [["SIGTERM"], true, false],
  [["SIGINT"], true, false],
  [["disconnect"], true, false],
  [["SIGINT", 999, "SIGINT"], true, false],
  [["SIGINT", 1000, "SIGINT"], true, true],
  [["SIGTERM", "SIGINT"], true, true],
  [["disconnect", "SIGTERM"], true, false],
  [["SIGTERM", "disconnect"], true, false],
])("%o: stop %s, now %s", (events, stop, abort) => {
  expect(after(...events)).toEqual({ stop, abort });
});

it("sees an agent as long as it lives", async () => {
  const id = randomUUID();
  expect(await isAlive(id, hostScope)).toBe(false);
  {
    using _life = await showAlive(id);
    expect(await isAlive(id, hostScope)).toBe(true);
    expect(await isAlive(randomUUID(), hostScope)).toBe(false);
  }
  expect(await isAlive(id, hostScope)).toBe(false);
});

it("does not see one that was killed", async () => {
  const id = randomUUID();
  const script = `
    import { showAlive } from ${JSON.stringify(import.meta.resolve("./host/alive.ts"))};
    await showAlive(${JSON.stringify(id)});
    console.log("alive");
    setInterval(() => {}, 1000);
  `;
  const args = ["--import", "tsx", "--input-type=module", "--eval", script];
  const agent = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  await once(agent.stdout, "data");
  expect(await isAlive(id, hostScope)).toBe(true);
  agent.kill("SIGKILL");
  await once(agent, "exit");
  expect(await isAlive(id, hostScope)).toBe(false);
});

it("cannot tell whether an agent in another namespace lives", async () => {
  expect(await isAlive(randomUUID(), "another boot net:[1]")).toBeNull();
  expect(await isAlive(randomUUID(), "")).toBeNull();
});

test("a sleep lasts as long as it should, and leaves no listener on the signal", async () => {
  const { signal } = new AbortController();
  const beganMs = systemClock.nowMs();
  await systemClock.sleep(20, signal);
  expect(systemClock.nowMs() - beganMs).toBeGreaterThan(18);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("an aborted sleep rejects with the signal's reason, before and during the sleep", async () => {
  const cut = new AbortController();
  const sleeping = systemClock.sleep(600_000, cut.signal);
  cut.abort(OVER);
  await expect(sleeping).rejects.toBe(OVER);
  await expect(systemClock.sleep(600_000, cut.signal)).rejects.toBe(OVER);
});
