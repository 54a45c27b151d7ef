import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { classify } from "../sandbox/output/classify.ts";
import { EngineError } from "../sandbox/errors.ts";
import { createFakeSandbox } from "../testing/fake-sandbox.ts";
import { createTestAgent, type TestAgent } from "../testing/test-agent.ts";

let t: TestAgent;

beforeEach(async () => {
  t = await createTestAgent();
  t.assumeGoodEngine();
});
afterEach(() => t[Symbol.asyncDispose]());

describe("a container that is lost", () => {
  it("before the code started hands the lease back", async () => {
    const sandbox = createFakeSandbox({ begins: false });
    t.start = () => Promise.resolve(sandbox);
    const { ended } = t.begin();
    sandbox.finish({ ending: "lost", started: false, lostReason: "gone" });
    await ended;
    expect((await t.api.request("/release")).json).toMatchObject({
      error: { type: "internal_error", phase: "startup" },
    });
    expect(t.api.count("/result")).toBe(0);
  });

  it("with running code fails the job if the engine works, and the job never runs again", async () => {
    const { ended } = t.begin();
    (await t.sandbox(0)).finish({ ending: "lost", lostReason: "gone" });
    await ended;
    expect((await t.api.request("/result")).json).toMatchObject({
      status: "failed",
      error: { type: "internal_error", phase: "execution" },
    });
    expect(t.api.count("/release")).toBe(0);
  });

  it("with running code hands the lease back if the engine is gone too", async () => {
    const { ended } = t.begin();
    const sandbox = await t.sandbox(0);
    t.health = new EngineError("unavailable", "connect ECONNREFUSED");
    sandbox.finish({ ending: "lost", lostReason: "gone" });
    await ended;
    expect((await t.api.request("/release")).json).toEqual({
      error: {
        type: "internal_error",
        message: "The container engine was lost while the code ran.",
        phase: "execution",
      },
    });
    expect(t.api.count("/result")).toBe(0);
    expect(t.deps.engine.breaker().failure_count).toBe(1);
  });

  it("with running code, but not with its mother, fails the job although the engine is out of reach", async () => {
    const { ended } = t.begin();
    const sandbox = await t.sandbox(0);
    t.health = new EngineError("unavailable", "connect ECONNREFUSED");
    sandbox.finish({ ending: "lost", lostReason: "gone", isHostLost: false });
    await ended;
    expect((await t.api.request("/result")).json).toMatchObject({
      status: "failed",
      error: { type: "internal_error", phase: "execution" },
    });
    expect(t.api.count("/release")).toBe(0);
  });

  it.each([
    [
      "with its mother",
      { isHostLost: true as const },
      "The container engine was lost while the code ran.",
    ],
    ["before the code started", { started: false }, "The container could not be started."],
  ])("%s and the engine hands the lease back once that is known", async (_, how, message) => {
    const sandbox = createFakeSandbox({ begins: !("started" in how) });
    t.start = () => Promise.resolve(sandbox);
    const { ended } = t.begin();
    await sandbox.running;
    t.health = new EngineError("unavailable", "connect ECONNREFUSED");
    sandbox.finish({ ending: "lost", lostReason: "gone", ...how });
    const { json } = await t.api.request("/release");
    expect(t.deps.engine.breaker().failure_count).toBe(1);
    expect(json).toMatchObject({ error: { message } });
    await ended;
  });

  it("because of memory is the code's fault, whatever state the engine is in", async () => {
    Object.assign(t.deps, { judge: classify });
    const { ended } = t.begin();
    const sandbox = await t.sandbox(0);
    t.health = new EngineError("unavailable", "connect ECONNREFUSED");
    sandbox.finish({ ending: "lost", lostReason: "gone", outOfMemory: true });
    await ended;
    expect((await t.api.request("/result")).json).toMatchObject({ status: "oom" });
    expect(t.api.count("/release")).toBe(0);
  });

  it("because the agent's disk is full is tried once more", async () => {
    const { ended } = t.begin();
    const full = Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
    (await t.sandbox(0)).fail(full);
    await ended;
    expect((await t.api.request("/release")).json).toMatchObject({
      error: { message: "The agent could not store the files that the code wrote." },
    });
    expect(t.api.count("/result")).toBe(0);
  });

  it("with an error in the agent fails the job too", async () => {
    const { ended } = t.begin();
    (await t.sandbox(0)).fail(new TypeError("not a function"));
    await ended;
    expect((await t.api.request("/result")).json).toMatchObject({
      status: "failed",
      error: { type: "internal_error", message: "The run was lost to a failure of the service." },
    });
  });
});
