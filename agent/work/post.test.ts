import { createHash } from "node:crypto";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { configure, reset } from "@logtape/logtape";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { formatLogLine } from "../../shared/log-line.ts";
import type { SandboxSource } from "../sandbox/sandbox.ts";
import type { RunReport, SpooledArtifact } from "../sandbox/verdict.ts";
import { reportWith } from "../testing/engine.ts";
import { judgeSimply } from "../testing/fakes.ts";
import { t, useTestAgent } from "../testing/test-agent.ts";
import { LeaseDropped } from "./leases.ts";
import { resultOfReport, type Times } from "./post.ts";

useTestAgent({ hasGoodEngine: true });

async function spool(folder: string, n: number): Promise<SpooledArtifact> {
  const bytes = `file ${n}`;
  const path = join(folder, String(n));
  await mkdir(folder, { recursive: true });
  await writeFile(path, bytes);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { name: `sub/${n}.txt`, path, sizeBytes: bytes.length, sha256 };
}

const puts = () => t.api.received.filter(({ method }) => method === "PUT");

async function runWithArtifacts(count: number): Promise<void> {
  const { ended } = t.begin();
  const { sandbox, options } = await t.running();
  const numbers = Array.from({ length: count }, (_, n) => n);
  const artifacts = await Promise.all(numbers.map((n) => spool(options.spoolDir, n)));
  sandbox.finish({ artifacts });
  await ended;
}

describe("artifacts", () => {
  it("are uploaded after the container was given back, once", async () => {
    const { sandboxes } = t.deps;
    const told: string[] = [];
    const noted: Pick<SandboxSource, "giveBack" | "discard"> = {
      giveBack: (sandbox) => {
        told.push("given back");
        return sandboxes.giveBack(sandbox);
      },
      discard: () => told.push("discarded"),
    };
    Object.assign(t.deps, { sandboxes: { ...sandboxes, ...noted } });
    t.api.answer("0.txt", "silence");
    const { lease, ended } = t.begin();
    const { sandbox, options } = await t.running();
    sandbox.finish({ artifacts: [await spool(options.spoolDir, 0)] });
    await t.api.request("0.txt");
    expect(told).toEqual(["given back"]);
    lease.drop.abort(new LeaseDropped("the API gave the lease up"));
    await ended;
    expect(told).toEqual(["given back"]);
  });

  it("are all stored before the result", async () => {
    await runWithArtifacts(9);
    const names = puts().map(({ path }) => path.split("/").at(-1));
    const expected = Array.from({ length: 9 }, (_, n) => `sub%2F${n}.txt`);
    expect(new Set(names)).toEqual(new Set(expected));
    expect(names).toHaveLength(9);
    expect(t.api.received.at(-1)?.path).toContain("/result");
  });

  it("are sent again after a failed upload", async () => {
    t.api.answer("0.txt", "cut", { status: 500 });
    await runWithArtifacts(1);
    expect(puts().map(({ bytes }) => bytes.toString())).toEqual(Array(3).fill("file 0"));
    expect((await t.api.request("/result")).json).toMatchObject({ status: "succeeded" });
  });

  it("that the API will never take are left out", async () => {
    t.api.answer("0.txt", { status: 413 });
    await runWithArtifacts(2);
    expect(puts()).toHaveLength(2);
    expect((await t.api.request("/result")).json).toMatchObject({ status: "succeeded" });
  });

  it("that the agent's disk has lost end the job, which keeps its output", async () => {
    const { ended } = t.begin();
    const { sandbox, options } = await t.running();
    const lost = await spool(options.spoolDir, 0);
    await rm(lost.path);
    sandbox.finish({ artifacts: [lost], stdout: Buffer.from("kept") });
    await ended;
    expect((await t.api.request("/result")).json).toMatchObject({
      status: "failed",
      error: {
        type: "internal_error",
        message: "The files in /output were lost on the agent's disk.",
      },
      stdout_base64: Buffer.from("kept").toString("base64"),
    });
  });

  it("of a lost lease are not followed by a result", async () => {
    t.api.answer("0.txt", { status: 409 });
    await runWithArtifacts(1);
    expect(t.api.count("/result")).toBe(0);
  });
});

describe("posting the result", () => {
  /** Runs a job that ends at once, until its lease is over. */
  async function post(report: Partial<RunReport> = {}): Promise<void> {
    const { ended } = t.begin();
    (await t.sandbox(0)).finish(report);
    await ended;
  }

  it("is repeated with the same body until the API has it", async () => {
    t.api.answer("/result", { status: 503 }, "cut");
    await post({ stdout: Buffer.from("once") });
    const bodies = t.api.received
      .filter(({ path }) => path.endsWith("/result"))
      .map(({ bytes }) => bytes.toString());
    expect(bodies).toHaveLength(3);
    expect(new Set(bodies).size).toBe(1);
  });

  it("ends when the API says that the lease is another's", async () => {
    t.api.answer("/result", { status: 409 });
    await post();
    expect(t.api.count("/result")).toBe(1);
  });

  it("continues when a poll meanwhile calls the lease lost", async () => {
    t.api.answer("/result", "silence");
    const { lease, ended } = t.begin();
    (await t.sandbox(0)).finish();
    await t.api.request("/result");
    const { lease_id } = lease.job;
    const news = { cancel: [], lost: [lease_id], intervals: t.api.intervals };
    t.deps.leases.learn(news, [lease_id], t.clock.nowMs());
    t.api.cut();
    await ended;
    expect(t.api.count("/result")).toBe(2);
    expect(lease.drop.signal.aborted).toBe(false);
  });

  it("is abandoned when the API stays away until the lease expires", async () => {
    t.api.answer("/result", "cut", "cut", "cut", "cut");
    await post();
    expect(t.api.count("/result")).toBe(4);
  });

  it("falls back to a failure without output if the API refuses it", async () => {
    t.api.answer("/result", { status: 413 });
    await post({ stdout: Buffer.from("long") });
    expect((await t.api.request("/result", 2)).json).toMatchObject({
      status: "failed",
      error: { type: "internal_error", message: "The result could not be stored." },
      stdout_base64: "",
    });
  });

  it("stops the agent if the token is refused", async () => {
    t.api.answer("/result", { status: 401 });
    await expect(post()).rejects.toMatchObject({ kind: "unauthorized" });
  });
});

describe("the log line of a job", () => {
  const seen: { line: string; traceparent: unknown }[] = [];
  beforeEach(() =>
    configure({
      reset: true,
      sinks: {
        seen: (record) =>
          void seen.push({
            line: formatLogLine(record),
            traceparent: record.properties["traceparent"],
          }),
      },
      loggers: [{ category: [], lowestLevel: "info", sinks: ["seen"] }],
    }),
  );
  afterEach(reset);

  it("has the id of the trace that the job belongs to, where it belongs to one", async () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (const [n, told] of [{ traceparent }, {}].entries()) {
      const { ended } = t.begin(told);
      const { sandbox } = await t.running(n);
      sandbox.finish({});
      await ended;
    }
    const lines = seen.filter(({ line }) => line.includes(" attempt 1 succeeded "));
    expect(lines.map((one) => one.traceparent)).toEqual([traceparent, undefined]);
    expect(lines[0]?.line).toMatch(/ ms, trace 4bf92f3577b34da6a3ce929d0e0e4736\n$/);
    expect(lines[1]?.line).toMatch(/ ms\n$/);
  });
});

const cases: [Partial<Times>, executionMs: number, startup: number, execution: number][] = [
  [{ startedMs: 150, endedMs: 1000 }, 800, 50, 800],
  // Word of the beginning was 30 ms on its way.
  [{ startedMs: 180, endedMs: 960 }, 800, 60, 800],
  [{ startedMs: 100.5, endedMs: 101.9 }, 1.5, 0, 2],
];

it.each(cases)(
  "%o and %d ms of code: start-up and code add up to no more than the whole",
  (times, ...rest) => {
    const [executionMs, startup_ms, execution_ms] = rest;
    const report = reportWith({ executionMs });
    const { timing } = resultOfReport(
      report,
      judgeSimply(report),
      { takenMs: 100, installMs: 0, startedMs: null, endedMs: 0, ...times },
      { jobRef: "default@sha256:1", runtime: "runc", sandbox: { backend: "engine" } },
    );
    expect(timing).toMatchObject({ startup_ms, execution_ms, phase_at_exit: "completed" });
    expect(timing.startup_ms + timing.execution_ms).toBeLessThanOrEqual(timing.total_ms);
  },
);
