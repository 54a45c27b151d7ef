import { afterEach, beforeEach, expect, it } from "vitest";
import { abortable } from "../waiting/abortable.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { RunCancelled } from "../lease/leases.ts";
import type { StartSandbox } from "../container/container-source.ts";
import { EngineError, type EngineErrorCode } from "../sandbox/errors.ts";
import { createTestAgent, type TestAgent } from "../testing/test-agent.ts";

let t: TestAgent;

beforeEach(async () => {
  t = await createTestAgent();
  t.assumeGoodEngine();
});
afterEach(() => t[Symbol.asyncDispose]());

const transient = (code: EngineErrorCode) =>
  new EngineError(code, "secret path", { transient: true });
const neverReady: StartSandbox = (_spec, signal) => abortable(new Promise(() => {}), signal);

it.each([
  [transient("unavailable"), "service_unavailable", "The container engine is not available."],
  [transient("other"), "internal_error", "The container could not be started."],
  [transient("not_forked"), "internal_error", "The container could not be started."],
  [transient("disk_full"), "internal_error", "The disk of the container engine is full."],
  [new Error("bug"), "internal_error", "The container could not be started."],
])("%s hands the lease back", async (error, type, message) => {
  t.start = () => Promise.reject(error);
  await t.begin().ended;
  const { json } = await t.api.request("/release");
  expect(json).toEqual({ error: { type, message, phase: "startup" } });
  expect(t.api.count("/result")).toBe(0);
});

it("an engine that failed counts for the breaker; a job that cannot start does not", async () => {
  t.start = () => Promise.reject(transient("other"));
  await t.begin().ended;
  expect(t.deps.engine.breaker().failure_count).toBe(1);
  t.start = () => Promise.reject(new EngineError("conflict", "x", { transient: false }));
  await t.begin().ended;
  expect(t.deps.engine.breaker().failure_count).toBe(1);
  t.start = () => Promise.reject(transient("not_forked"));
  await t.begin().ended;
  expect(t.deps.engine.breaker().failure_count).toBe(1);
});

it("an open breaker hands the lease back and asks nothing of the engine", async () => {
  Object.assign(t.deps.engine, { slotsToOffer: () => 0 });
  await t.begin().ended;
  expect((await t.api.request("/release")).json).toMatchObject({
    error: { type: "service_unavailable" },
  });
  expect(t.specs).toEqual([]);
});

it.each([
  [new EngineError("command_not_found", "no python3", { transient: false }), "docker_error"],
  [new EngineError("other", "bad", { transient: false }), "internal_error"],
  [new JobRefusal("config_error", "strict requires runsc"), "config_error"],
])("%s fails the job for good", async (error, type) => {
  t.start = () => Promise.reject(error);
  await t.begin().ended;
  const { json } = await t.api.request("/result");
  expect(json).toMatchObject({
    status: "failed",
    exit_code: null,
    error: { type, phase: "startup" },
    timing: { phase_at_exit: "startup" },
    job_ref: null,
  });
});

it("an image that is gone is looked up once more", async () => {
  const { start } = t;
  t.start = (spec, signal) => {
    t.start = start;
    void signal;
    return Promise.reject(new EngineError("image_not_found", spec.image, { transient: false }));
  };
  const { ended } = t.begin();
  (await t.sandbox(0)).finish();
  await ended;
  expect((await t.api.request("/result")).json).toMatchObject({ status: "succeeded" });
});

it("a start that takes too long is a timeout", async () => {
  t.start = neverReady;
  const { ended } = t.begin({ startup_timeout_s: 10 });
  await t.clock.sleeping(10_000);
  t.clock.advance(10_000);
  await ended;
  expect((await t.api.request("/result")).json).toMatchObject({
    status: "timeout",
    exit_code: null,
    error: {
      type: "startup_timeout",
      message: "The container did not start within 10 s.",
      phase: "startup",
    },
    timing: { startup_ms: 10_000, execution_ms: 0, total_ms: 10_000, phase_at_exit: "startup" },
  });
});

it.each([
  ["request", "/result", { status: "cancelled", error: { type: "cancelled" } }],
  [
    "stop",
    "/release",
    { error: { type: "service_unavailable", phase: "startup" }, agent_stops: true },
  ],
] as const)("is cancelled by %s", async (by, path, body) => {
  t.start = neverReady;
  const { lease, ended } = t.begin();
  await t.clock.sleeping(60_000);
  lease.cancel.abort(new RunCancelled(by));
  await ended;
  expect((await t.api.request(path)).json).toMatchObject(body);
});
