import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { ExecutionError, ExecutionErrorType } from "../../shared/wire/errors.ts";
import type { ResultItem, Timing } from "../../shared/wire/executions.ts";
import type { LeasedJob, ResultReport, RunItem } from "../../shared/wire/leases.ts";
import type { Client } from "../client/client.ts";
import { ApiError } from "../client/http.ts";
import { JobRefusal } from "../host/policy.ts";
import type { CallItem, DisplayItem } from "../sandbox/job.ts";
import { EngineError, type Sandbox } from "../sandbox/sandbox.ts";
import {
  describeLeftOut,
  type RunReport,
  type SpooledArtifact,
  type Verdict,
} from "../sandbox/verdict.ts";
import { OVER } from "../waiting.ts";
import type { Acquired } from "./place.ts";
import { isStopped, type Lease } from "./leases.ts";

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
  acquired: Pick<Acquired, "jobRef" | "runtime"> & { readonly sandbox: Pick<Sandbox, "backend"> },
): ResultReport {
  const { usage, result, compiled } = report;
  const leftOut = describeLeftOut(report, verdict);
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
    job_ref: acquired.jobRef,
    container_runtime: acquired.runtime,
    container_backend: acquired.sandbox.backend,
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
function resultWithoutReport(
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

/** What the agent reports to the API at the end of a lease. */
export type Outcome =
  | {
      readonly kind: "result";
      readonly result: ResultReport;
      readonly artifacts: readonly SpooledArtifact[];
    }
  | { readonly kind: "release"; readonly error: ExecutionError; readonly agentStops?: true };

function whileRunning(message: string): ExecutionError {
  return { type: "internal_error", message, phase: "execution" };
}

/** Outcomes of runs that the agent's host has broken. */
export const engineLost: Outcome = {
  kind: "release",
  error: whileRunning("The container engine was lost while the code ran."),
};
export const motherLost: Outcome = {
  kind: "release",
  error: whileRunning("The container in which jobs are forked was lost while the code ran."),
};
const diskFailed: Outcome = {
  kind: "release",
  error: whileRunning("The agent could not store the files that the code wrote."),
};

const diskCodes = new Set(["ENOSPC", "EDQUOT", "EROFS", "EIO"]);

/** Source: open(2), write(2). */
function isOfTheDisk(error: unknown): boolean {
  return error instanceof Error && diskCodes.has((error as NodeJS.ErrnoException).code ?? "");
}

/**
 * The outcome of a run that `error` ended. It is retried elsewhere only if the code had not started
 * or the agent's disk failed.
 */
export function failureOutcome(
  error: unknown,
  lease: Pick<Lease, "cancel">,
  times: Times,
): Outcome {
  if (isOfTheDisk(error)) return diskFailed;
  if (times.startedMs !== null) {
    return ended("failed", whileRunning("The run was lost to a failure of the service."), times);
  }
  if (lease.cancel.signal.aborted) return outcomeOfCancel(lease, times);
  if (error instanceof JobRefusal) {
    const status = error.type === "startup_timeout" ? "timeout" : "failed";
    return ended(status, startupError(error.type, error.message), times);
  }
  if (!(error instanceof EngineError)) return release("internal_error", broken);
  if (error.code === "image_not_found" || error.code === "command_not_found") {
    return ended("failed", startupError("docker_error", error.message), times);
  }
  if (!error.transient) return ended("failed", startupError("internal_error", broken), times);
  if (error.code === "unavailable") return release("service_unavailable", unavailable);
  return release("internal_error", error.code === "disk_full" ? fullDisk : broken);
}

const unavailable = "The container engine is not available.";
const broken = "The container could not be started.";
const fullDisk = "The disk of the container engine is full.";

/** An agent that stops hands back a job whose code has not started. */
function outcomeOfCancel(lease: Pick<Lease, "cancel">, times: Times): Outcome {
  if (isStopped(lease)) {
    const error = startupError("service_unavailable", "The agent stopped before the code began.");
    return { kind: "release", error, agentStops: true };
  }
  return ended("cancelled", startupError("cancelled", "Cancelled before the code began."), times);
}

function release(type: ExecutionErrorType, message: string): Outcome {
  return { kind: "release", error: startupError(type, message) };
}

function ended(
  status: "failed" | "timeout" | "cancelled",
  error: ExecutionError,
  times: Times,
): Outcome {
  return { kind: "result", result: resultWithoutReport(status, error, times), artifacts: [] };
}

function startupError(type: ExecutionErrorType, message: string): ExecutionError {
  return { type, message, phase: "startup" };
}

type PostDeps = {
  readonly client: Pick<Client, "upload" | "result" | "release">;
  readonly log: Logger;
};

/**
 * Posts how a lease ended, after its artifacts, unless the agent no longer holds the lease. If the
 * post fails, the lease expires. If `takes`, returns the jobs that came with the answer.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function postOutcome(
  deps: PostDeps,
  lease: Lease,
  outcome: Outcome,
  takes: () => boolean = () => false,
): Promise<readonly LeasedJob[]> {
  const { log } = deps;
  const { signal } = lease.drop;
  const { lease_id, attempt } = lease.job;
  try {
    signal.throwIfAborted();
    if (outcome.kind === "release") {
      lease.isReporting = true;
      const { error, agentStops: agent_stops } = outcome;
      await deps.client.release(lease_id, { error, agent_stops }, signal);
      log.warn("attempt {attempt} released: {reason}", { attempt, reason: outcome.error.message });
    } else {
      const result = await withUploads(deps, lease_id, outcome, signal);
      lease.isReporting = true;
      const jobs = await postResult(deps, lease_id, result, takes(), signal);
      const { status, timing, error } = result;
      log.info("attempt {attempt} {status} {type}in {total_ms} ms, startup {startup_ms} ms", {
        attempt,
        status,
        type: error && error.type !== status ? `(${error.type}) ` : "",
        ...timing,
      });
      return jobs;
    }
  } catch (error) {
    if (error instanceof ApiError && error.endsAgent) throw error;
    const reason = describeError(signal.aborted ? signal.reason : error);
    if (signal.aborted || (error instanceof ApiError && error.kind === "lease_lost")) {
      log.warn("attempt {attempt} dropped: {reason}", { attempt, reason });
    } else {
      log.error("attempt {attempt} could not be reported: {reason}", { attempt, reason });
    }
  }
  return [];
}

/** Uploads the artifacts. If the agent's disk has lost one, the job has failed: its code must not run a second time. */
async function withUploads(
  deps: PostDeps,
  leaseId: string,
  { result, artifacts }: Extract<Outcome, { kind: "result" }>,
  signal: AbortSignal,
): Promise<ResultReport> {
  try {
    if (artifacts.length > 0) await uploadArtifacts(deps, leaseId, artifacts, signal);
    return result;
  } catch (error) {
    if (error instanceof ApiError || signal.aborted) throw error;
    deps.log.error("artifacts could not be read: {reason}", { reason: describeError(error) });
    return failed(result, "The files in /output were lost on the agent's disk.");
  }
}

/**
 * If the API rejects a result for good, posts it without its output: the code must not run a second
 * time.
 */
async function postResult(
  { client, log }: PostDeps,
  leaseId: string,
  result: ResultReport,
  takes: boolean,
  signal: AbortSignal,
): Promise<readonly LeasedJob[]> {
  try {
    return (await client.result(leaseId, result, takes, signal)).jobs;
  } catch (error) {
    if (!(error instanceof ApiError) || error.kind !== "rejected") throw error;
    log.error("the API rejected the result: {reason}", { reason: describeError(error) });
    return (await client.result(leaseId, withoutOutput(result), takes, signal)).jobs;
  }
}

function withoutOutput(result: ResultReport): ResultReport {
  return {
    ...failed(result, "The result could not be stored."),
    stdout_base64: "",
    stderr_base64: "",
    output_json: null,
    items: undefined,
  };
}

function failed(result: ResultReport, message: string): ResultReport {
  return { ...result, status: "failed", error: whileRunning(message) };
}

const UPLOADS_AT_ONCE = 4;

/**
 * Uploads artifacts, a few at once. An artifact that the API rejects for good is left out; any
 * other failure ends the upload.
 *
 * @throws ApiError; the signal's reason.
 */
async function uploadArtifacts(
  deps: PostDeps,
  leaseId: string,
  artifacts: readonly SpooledArtifact[],
  signal: AbortSignal,
): Promise<void> {
  const queue = artifacts.values();
  const failure = new AbortController();
  const bound = AbortSignal.any([signal, failure.signal]);

  async function work(): Promise<void> {
    for (const artifact of queue) {
      bound.throwIfAborted();
      await upload(deps, leaseId, artifact, bound);
    }
  }

  try {
    await Promise.all(Array.from({ length: UPLOADS_AT_ONCE }, work));
  } finally {
    failure.abort(OVER);
  }
}

async function upload(
  { client, log }: PostDeps,
  leaseId: string,
  artifact: SpooledArtifact,
  signal: AbortSignal,
): Promise<void> {
  try {
    await client.upload(leaseId, artifact, signal);
  } catch (error) {
    if (!(error instanceof ApiError) || error.kind !== "rejected") throw error;
    log.error("the API rejected an artifact, which is left out: {reason}", {
      reason: describeError(error),
    });
  }
}
