import { reset } from "@logtape/logtape";
import { beforeEach, describe, expect, it } from "vitest";
import { logLines } from "../../shared/testing/test-file.ts";
import type { ResultReport } from "../../shared/wire/leases.ts";
import type { StartSandbox } from "../backends/containers.ts";
import { JobRefusal } from "../host/policy.ts";
import { InstallError } from "../sandbox/job.ts";
import { EngineError, type EngineErrorCode, type Sandbox } from "../sandbox/sandbox.ts";
import { createFakeSandbox } from "../testing/fakes.ts";
import { t, useTestAgent } from "../testing/test-agent.ts";
import { abortable } from "../waiting.ts";
import { RunCancelled } from "./leases.ts";

useTestAgent({ hasGoodEngine: true });

describe("start up", () => {
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
});

describe("requirements", async () => {
  beforeEach(() => {
    Object.assign(t.deps, { requirements: { allowed: true, cache: null } });
  });

  const requirements = ["airlock-probe"];
  const result = async () => (await t.api.request("/result")).json as ResultReport;

  /** Has every container install as it is told here. */
  function installWith(install: Sandbox["install"]): void {
    t.start = () => Promise.resolve({ ...createFakeSandbox(), install });
  }

  it("the start-up time limit covers container and packages together", async () => {
    const installing = Promise.withResolvers<void>();
    installWith((_packages, signal) => {
      installing.resolve();
      return abortable(new Promise(() => {}), signal);
    });
    const { ended } = t.begin({ requirements, startup_timeout_s: 10 });
    await installing.promise;
    t.clock.advance(10_000);
    await ended;
    expect(await result()).toMatchObject({
      status: "timeout",
      exit_code: null,
      error: { type: "startup_timeout", phase: "startup" },
      timing: { startup_ms: 10_000, dep_install_ms: 10_000, phase_at_exit: "startup" },
    });
  });

  it("packages that cannot be installed fail the job; a lost container hands it back", async () => {
    installWith(() => Promise.reject(new InstallError("ERROR: No matching distribution")));
    await t.begin({ requirements }).ended;
    expect((await result()).error).toEqual({
      type: "dependency_error",
      message: "ERROR: No matching distribution",
      phase: "startup",
    });
    installWith(() => Promise.reject(new EngineError("other", "gone")));
    await t.begin({ requirements }).ended;
    expect((await t.api.request("/release")).json).toMatchObject({ error: { phase: "startup" } });
  });

  it("the log has one line of pip's output, the last one", async () => {
    const lines = await logLines("warning");
    const words = "ERROR: Could not find a version\nERROR: No matching distribution found for a";
    installWith(() => Promise.reject(new InstallError(words)));
    await t.begin({ requirements }).ended;
    await reset();
    expect((await result()).error?.message).toBe(words);
    expect(lines).toEqual(["the job is not run: ERROR: No matching distribution found for a"]);
  });
});
