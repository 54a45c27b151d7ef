import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { Timing } from "../../shared/wire/execution.ts";
import type { ResultItem } from "../../shared/wire/result-item.ts";
import type { RunItem } from "../../shared/wire/agent/items.ts";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import type { Acquired } from "./acquire.ts";
import { describeLeftOut } from "../sandbox/output/classify.ts";
import type { RunReport, Verdict } from "../sandbox/report.ts";
import type { CallItem, DisplayItem } from "../sandbox/job.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** The times of one job, milliseconds on the agent's clock. */
export type Times = {
  readonly takenMs: number;
  /** How long the installation of packages took. */
  readonly installMs: number;
  /** Null if the code never started. */
  readonly startedMs: number | null;
  readonly endedMs: number;
};

/** The result of code that ran. */
export function resultOfReport(
  report: RunReport,
  verdict: Verdict,
  times: Times,
  {
    jobRef,
    runtime,
    sandbox: { backend },
  }: Pick<Acquired, "jobRef" | "runtime"> & {
    readonly sandbox: Pick<Sandbox, "backend">;
  },
): ResultReport {
  const { usage, result, compiled } = report;
  const leftOut = describeLeftOut(report);
  return {
    status: verdict.status,
    exit_code: verdict.exitCode,
    error: verdict.error,
    stdout_base64: toBase64(report.stdout),
    stderr_base64: toBase64(report.stderr),
    stdout_truncated: report.stdoutTruncated,
    stderr_truncated: report.stderrTruncated,
    output_json: result.kind === "object" ? result.text : null,
    timing: timing(times, report.executionMs, verdict.phaseAtExit),
    resource_usage: usage && {
      max_rss_mb: Math.round((usage.maxRssBytes / 1024 ** 2) * 100) / 100,
      cpu_time_ms: Math.round(usage.cpuTimeMs),
      wall_time_ms: Math.round(usage.wallTimeMs),
    },
    job_ref: jobRef,
    container_runtime: runtime,
    container_backend: backend,
    ...(report.items.length > 0 && { items: report.items.map(toResultItem) }),
    ...(report.itemsTruncated && { results_truncated: true }),
    ...(compiled && {
      compile: {
        exit_code: compiled.exitStatus,
        stdout: compiled.stdout,
        stderr: compiled.stderr,
        ms: Math.round(compiled.wallMs),
      },
    }),
    ...(leftOut !== undefined && { warnings: [leftOut] }),
  };
}

export function toRunItem(item: DisplayItem | CallItem): RunItem {
  if ("data" in item) return toResultItem(item);
  const { number, name, stdoutAt, stderrAt } = item;
  return { number, name, arguments: item.arguments, stdout_at: stdoutAt, stderr_at: stderrAt };
}

function toResultItem({ number, main, data, stdoutAt, stderrAt }: DisplayItem): ResultItem {
  return { number, main, data, stdout_at: stdoutAt, stderr_at: stderrAt };
}

/** The result of a job whose run gave no report, mostly because the code never started. */
export function resultWithoutReport(
  status: "failed" | "timeout" | "cancelled",
  error: ExecutionError,
  times: Times,
): ResultReport {
  return {
    status,
    exit_code: null,
    error,
    stdout_base64: "",
    stderr_base64: "",
    stdout_truncated: false,
    stderr_truncated: false,
    output_json: null,
    timing: timing(times, 0, error.phase),
    resource_usage: null,
    job_ref: null,
    container_runtime: null,
    container_backend: null,
  };
}

/**
 * PID 1 measures the execution time: the message that the code started may arrive late, even after
 * the message that it ended.
 */
function timing(
  { takenMs, installMs, startedMs, endedMs }: Times,
  executionMs: number,
  phase: Timing["phase_at_exit"],
): Timing {
  const total_ms = Math.round(endedMs - takenMs);
  const execution_ms = Math.min(total_ms, Math.round(executionMs));
  return {
    startup_ms: Math.min(total_ms - execution_ms, Math.round((startedMs ?? endedMs) - takenMs)),
    dep_install_ms: Math.round(installMs),
    execution_ms,
    total_ms,
    phase_at_exit: phase,
  };
}

function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}
