import { expect, it } from "vitest";
import { resultOfReport, type Times } from "./result.ts";
import { reportWith } from "../sandbox/testing/report.ts";
import { judgeSimply } from "../testing/fake-sandbox.ts";

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
