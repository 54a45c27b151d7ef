import { describe, expect, it, test } from "vitest";
import type { CallFile } from "../sandbox/job.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import {
  replaceTestAgent,
  type RunningAgent,
  t,
  testCall,
  testSession,
  useTestAgent,
} from "../testing/test-agent.ts";
import { createBroughtFiles, createKnownFiles } from "./session.ts";

describe("hold session", () => {
  let agent: RunningAgent;
  useTestAgent({ slots: 1, maxSessions: 2 });

  /** A session that is ready. */
  async function begin(changes = {}) {
    agent = t.run();
    const session = testSession(changes);
    t.api.offerSession(session);
    const ready = await t.api.request("/ready");
    return { session, ready, sandbox: await t.sandbox(0) };
  }

  /** A call that runs in the session. */
  async function callIn(session: ReturnType<typeof testSession>, changes = {}) {
    const call = testCall(session, changes);
    t.api.offerCall(call);
    const { job } = await t.running();
    return { call, job };
  }

  describe("a session", () => {
    it("is offered beside the slots, posted as ready, and renewed with each poll", async () => {
      const { session, ready, sandbox } = await begin({ env: { A: "1" } });
      expect((await t.api.request("/poll")).json).toMatchObject({
        free_sessions: 2,
        free_slots: 1,
      });
      expect(ready.path).toBe(`/sessions/${session.lease_id}/ready`);
      expect(ready.json).toMatchObject({ container_backend: "engine", python_version: "3.13.5" });
      expect(sandbox.sessionEnv()).toEqual({ A: "1" });
      t.api.wake();
      const next = await t.api.request("/poll", t.api.count("/poll") + 1);
      expect(next.json).toMatchObject({
        free_sessions: 1,
        free_slots: 1,
        sessions: [session.lease_id],
      });
      expect(t.deps.sandboxes.stats()).toMatchObject([{ in_use: 0 }]);
    });

    it("is not offered where max_sessions is 0", async () => {
      await replaceTestAgent();
      t.run();
      const { json } = await t.api.request("/poll", 2);
      expect([json["free_sessions"], json["sessions"]]).toEqual([undefined, undefined]);
    });

    it("that cannot start is handed back with the reason", async () => {
      t.start = () => Promise.reject(new EngineError("other", "no"));
      t.run();
      const session = testSession();
      t.api.offerSession(session);
      const released = await t.api.request("/release");
      expect(released.path).toBe(`/sessions/${session.lease_id}/release`);
      expect(released.json).toMatchObject({ error: { phase: "startup" } });
      await t.deps.changes.waitUntil(() => t.deps.sessions.free() === 2);
    });

    it("that was dropped here and is listed again is handed back, and not renewed for ever", async () => {
      t.api.answer("/ready", { status: 409 });
      const { session } = await begin();
      await t.deps.changes.waitUntil(() => t.deps.sessions.free() === 2);
      t.api.offerSession(session);
      const released = await t.api.request("/release");
      expect(released.path).toBe(`/sessions/${session.lease_id}/release`);
    });

    it("that is no longer wanted when it is ready leaves no sandbox", async () => {
      t.api.answer("/ready", { status: 409 });
      const { sandbox } = await begin();
      await sandbox.closed;
      expect(t.api.count("/ended")).toBe(0);
    });

    it("that the API has ended is closed, and its call posts what it has as cancelled", async () => {
      const { session, sandbox } = await begin();
      const { call } = await callIn(session);
      t.api.lost.push(session.lease_id);
      t.api.wake();
      const result = await t.api.request("/result");
      expect(result.path).toContain(call.lease_id);
      expect(result.json).toMatchObject({ status: "cancelled" });
      await sandbox.closed;
      expect(t.api.count("/ended")).toBe(0);
    });

    it.each([
      [{ outOfMemory: true }, "out_of_memory", "oom"],
      [{ outOfMemory: false }, "engine_lost", "internal_error"],
      [undefined, "engine_lost", "internal_error"],
    ])("whose sandbox dies with %o has ended: %s", async (why, reason, type) => {
      const { session, sandbox } = await begin();
      sandbox.die(why);
      const ended = await t.api.request("/ended");
      expect(ended.path).toBe(`/sessions/${session.lease_id}/ended`);
      expect(ended.json).toMatchObject({ reason, error: { type } });
      await sandbox.closed;
    });

    it("whose sandbox dies during a call has ended before the call's result: the API leases no further one", async () => {
      const { session, sandbox } = await begin();
      const { call } = await callIn(session);
      sandbox.die();
      expect((await t.api.request("/ended")).json).toMatchObject({ reason: "engine_lost" });
      expect(t.api.count("/result")).toBe(0);
      expect((await t.api.request("/result")).path).toContain(call.lease_id);
    });

    it("whose sandbox dies during a call asks for no next one", async () => {
      const { session, sandbox } = await begin();
      await callIn(session);
      sandbox.die();
      expect((await t.api.request("/result")).headers["x-airlock-take"]).toBeUndefined();
      await t.api.request("/ended");
    });
  });

  describe("a call", () => {
    it("runs in the sandbox of its session without a slot, and asks for the next one", async () => {
      const { session, sandbox } = await begin();
      const { call, job } = await callIn(session, {
        code: "x = 1",
        call: { number: 3, context: "c", contexts: ["c"], env: { B: "2" }, fetch: ["f"] },
      });
      expect(job).toMatchObject({
        code: "x = 1",
        results: true,
        call: {
          number: 3,
          context: "c",
          contexts: ["c"],
          restart: false,
          env: { B: "2" },
          files: [],
        },
      });
      const poll = await t.api.request("/poll", t.api.count("/poll"));
      expect(poll.json).toMatchObject({ free_slots: 1 });
      sandbox.finish();
      const result = await t.api.request("/result");
      expect(result.path).toContain(call.lease_id);
      expect(result.headers["x-airlock-take"]).toBe("1");
      expect(t.specs).toHaveLength(1);
      expect(sandbox.closings()).toBe(0);
    });

    it("that the answer to a result brings runs at once", async () => {
      const { session, sandbox } = await begin();
      const next = testCall(session);
      t.api.answer("/result", { status: 200, body: { jobs: [next] } });
      await callIn(session);
      sandbox.finish();
      expect((await t.api.request("/result", 2)).path).toContain(next.lease_id);
    });

    it("of a session that is not here is handed back", async () => {
      await begin();
      const call = testCall(testSession());
      t.api.offerCall(call);
      const result = await t.api.request("/result");
      expect(result.path).toContain(call.lease_id);
      expect(result.json).toMatchObject({
        status: "failed",
        error: { message: "The session has ended at its agent." },
      });
    });
  });

  describe("when the agent stops", () => {
    it("a session without a call ends at once", async () => {
      const { sandbox } = await begin();
      agent.stop();
      expect((await t.api.request("/ended")).json).toMatchObject({ reason: "agent_stopped" });
      await agent.ended;
      expect(sandbox.closings()).toBe(1);
    });

    it("a call that runs may end, and so may the next one that its result brings", async () => {
      const { session, sandbox } = await begin();
      const next = testCall(session);
      t.api.answer("/result", { status: 200, body: { jobs: [next] } });
      await callIn(session);
      agent.stop();
      sandbox.finish();
      expect((await t.api.request("/result", 2)).path).toContain(next.lease_id);
      expect((await t.api.request("/ended")).json).toMatchObject({ reason: "agent_stopped" });
      await agent.ended;
    });

    it("a call that takes too long is cancelled before the session ends", async () => {
      const { session } = await begin();
      await callIn(session);
      agent.stop();
      await t.clock.sleeping(10_000);
      t.clock.advance(10_000);
      const result = await t.api.request("/result");
      expect(result.json).toMatchObject({
        status: "cancelled",
        error: { message: "The agent was stopped while the code ran." },
      });
      // It asks for no next call.
      expect(result.headers["x-airlock-take"]).toBeUndefined();
      await t.api.request("/ended");
      await agent.ended;
    });

    it("a session that starts is handed back, which is no attempt", async () => {
      const starting = Promise.withResolvers<void>();
      t.start = (_, signal) =>
        new Promise((_resolve, reject) => {
          starting.resolve();
          signal.addEventListener("abort", () => reject(signal.reason as Error));
        });
      agent = t.run();
      t.api.offerSession(testSession());
      await starting.promise;
      agent.stop();
      expect((await t.api.request("/release")).json).toMatchObject({ agent_stops: true });
      await agent.ended;
    });
  });
});

const file = (name: string, sizeBytes: number, to: CallFile["to"] = "input"): CallFile => ({
  name,
  sizeBytes,
  to,
  path: "",
  sha256: "",
});

test("files in /input stay and count for each later call; those to work on count once", () => {
  const { admit } = createBroughtFiles();
  admit([file("a", 6), file("w", 4, "work")], 10);
  admit([file("w", 4, "work")], 10);
  expect(() => admit([file("w", 5, "work")], 10)).toThrow("a quarter of its memory limit");
  admit([file("a", 1), file("b", 9)], 10);
  expect(() => admit([file("c", 1)], 10)).toThrow("a quarter of its memory limit");
});

test("a call that is refused has brought nothing", () => {
  const { admit } = createBroughtFiles();
  admit([file("a", 6)], 10);
  expect(() => admit([file("a", 1), file("b/c", 10)], 10)).toThrow("a quarter");
  admit([file("b", 4)], 10);
  expect(() => admit([file("d", 1)], 10)).toThrow("a quarter");
});

test("a name is no folder of another one", () => {
  const { admit } = createBroughtFiles();
  admit([file("a/b", 1)], 10);
  expect(() => admit([file("a", 1)], 10)).toThrow('has "a/b" in /input');
  expect(() => admit([file("a/b/c", 1)], 10)).toThrow('has "a/b" in /input');
});

test("files in /input are bounded in number: empty ones use memory, too", () => {
  const { admit } = createBroughtFiles(2);
  admit([file("a", 0), file("b", 0)], 10);
  admit([file("a", 0), file("c", 0, "work")], 10);
  expect(() => admit([file("c", 0)], 10)).toThrow("more than 2 files");
});

test("a file is known with its last content, and the last names only", () => {
  const known = createKnownFiles(2);
  const learn = (name: string, sha256: string) => known.learn({ name, sha256 });
  expect([learn("a", "1"), learn("a", "1"), learn("a", "2"), learn("a", "1")]).toEqual([
    false,
    true,
    false,
    false,
  ]);
  expect([learn("b", "1"), learn("a", "1"), learn("c", "1")]).toEqual([false, true, false]);
  expect([learn("a", "1"), learn("b", "1")]).toEqual([true, false]);
});
