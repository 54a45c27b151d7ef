import {
  isTerminal,
  type Artifact,
  type ExecutionRecord,
  type ExecutionStatus,
  type JobStatus,
  type QueueStatus,
  type SyncResult,
} from "../../shared/wire/execution.ts";
import { type ResultItem } from "../../shared/wire/result-item.ts";
import type { ToolCall } from "../../shared/wire/tool-call.ts";
import { decodeUtf8 } from "../../shared/bytes.ts";
import { JsonText, parseJson, type JsonObject, withoutMark } from "../../shared/json.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import type { FullExecution } from "../store/jobs/read.ts";
import type { ArtifactRow } from "../store/output/artifacts.ts";
import type { ItemRow } from "../store/output/items.ts";

export type View = "full" | "all" | undefined;

/** Names under which an execution's own code and input can be downloaded. */
export const internalArtifacts = { code: "_code.py", input: "_input.json" } as const;

/** Turns rows of the store into execution records, which `writeJson` writes: `output` is a `JsonText`. */
export function toRecord(full: FullExecution, view: View): ExecutionRecord {
  const { execution: e, payload } = full;
  return {
    execution_id: e.id,
    status: e.status,
    job_type: e.jobType,
    job_version: e.jobVersion,
    created_at: timestamp(e.createdAt),
    started_at: optionalTimestamp(e.startedAt),
    ended_at: optionalTimestamp(e.endedAt),
    duration_ms: e.endedAt === null || e.startedAt === null ? null : e.endedAt - e.startedAt,
    exit_code: e.exitCode,
    stdout: text(payload.stdout),
    stderr: text(payload.stderr),
    output: payload.output && outputOf(payload.output),
    error: e.error,
    timing: e.timing,
    ...(e.metadata && { metadata: e.metadata }),
    ...(full.items && { results: full.items === "left" ? [] : full.items.map(toResultItem) }),
    ...(e.results === "truncated" && { results_truncated: true }),
    ...(payload.compile && { compile: payload.compile }),
    ...(e.warnings && { warnings: e.warnings }),
    ...(e.batchId !== null && { batch_id: e.batchId }),
    ...ofCall(e),
    ...(view !== undefined && extendedFields(full)),
    ...(view === "all" && submissionFields(e)),
  };
}

function ofCall({ sessionId, call, context, kind }: ExecutionRow): Partial<ExecutionRecord> {
  if (sessionId === null || call === null || context === null) return {};
  return { session_id: sessionId, call, context, ...(kind && { kind }) };
}

function extendedFields({
  execution: e,
  payload,
  left,
  artifacts,
  inputFiles,
}: FullExecution): Partial<ExecutionRecord> {
  return {
    job_ref: e.jobRef,
    container_runtime: e.containerRuntime,
    artifacts: artifacts.map(toArtifact),
    input_artifacts: [...inputArtifacts(e), ...inputFiles.map(toArtifact)],
    resource_usage:
      e.maxRssMb === null || e.cpuTimeMs === null || e.wallTimeMs === null
        ? null
        : { max_rss_mb: e.maxRssMb, cpu_time_ms: e.cpuTimeMs, wall_time_ms: e.wallTimeMs },
    code_hash: e.codeHash,
    input_hash: e.inputHash,
    parent_execution_id: e.parentExecutionId,
    relationship: e.relationship,
    stdout_truncated: e.stdoutTruncated,
    stderr_truncated: e.stderrTruncated,
    idempotency_key: e.idempotencyKey,
    ...(e.containerBackend === "zygote" && { container_backend: e.containerBackend }),
    ...((payload.stdin || left.stdin) && { stdin: text(payload.stdin) }),
    ...(payload.args && { args: payload.args }),
    ...payload.program,
    ...payload.tools,
    ...(e.runAt !== null && { run_at: timestamp(e.runAt) }),
    ...(e.startBy !== null && { queue_timeout: queueTimeoutS(e, e.startBy) }),
    ...(e.maxAttempts < limits.maxAttempts && { max_attempts: e.maxAttempts }),
    ...(e.callbackUrl !== null && { callback_url: e.callbackUrl }),
    ...(e.traceparent !== null && { traceparent: e.traceparent }),
  };
}

function submissionFields(e: ExecutionRow): Partial<ExecutionRecord> {
  return {
    attempt: e.attempt,
    correlation_id: e.correlationId,
    mode: e.mode,
    timeout: e.timeoutS,
    startup_timeout: e.startupTimeoutS,
    requirements: e.requirements,
  };
}

function queueTimeoutS({ createdAt, runAt }: ExecutionRow, startBy: number): number {
  return (startBy - Math.max(createdAt, runAt ?? 0)) / 1000;
}

export function inputArtifacts(e: ExecutionRow): Artifact[] {
  return [
    {
      name: internalArtifacts.code,
      size_bytes: e.codeBytes,
      sha256: e.codeHash,
      content_type: "text/x-python; charset=utf-8",
    },
    {
      name: internalArtifacts.input,
      size_bytes: e.inputBytes,
      sha256: e.inputHash,
      content_type: "application/json",
    },
  ];
}

export function toArtifact(row: Omit<ArtifactRow, "executionId" | "leaseId">): Artifact {
  return {
    name: row.name,
    size_bytes: row.sizeBytes,
    sha256: row.sha256,
    content_type: row.contentType,
  };
}

export function toResultItem({ number, main, data, stdoutAt, stderrAt }: ItemRow): ResultItem {
  const forms = JSON.parse(data) as ResultItem["data"];
  return { number, main, data: forms, stdout_at: stdoutAt, stderr_at: stderrAt };
}

export function toToolCall({ number, data, stdoutAt, stderrAt }: ItemRow): ToolCall {
  const call = parseJson(data, { depth: callDepthMax }) as Pick<ToolCall, "name" | "arguments">;
  return { number, ...call, stdout_at: stdoutAt, stderr_at: stderrAt };
}

/** A call with its answer, if it has one. */
export function toAnsweredToolCall(row: ItemRow): ToolCall {
  const call = toToolCall(row);
  if (row.answer === null) return call;
  const answer = row.isError
    ? { error: row.answer }
    : { result: parseJson(row.answer, { depth: callDepthMax }) };
  return { ...call, answer };
}

/** One more than what a request may have: the row adds an object. */
const callDepthMax = limits.jsonDepthMax + 1;

/** Turns a finished execution into the answer of `POST /execute`. */
export function toSyncResult(full: FullExecution): SyncResult {
  const record = toRecord(full, undefined);
  const ms = record.timing?.execution_ms ?? record.duration_ms ?? 0;
  return {
    success: record.status === "succeeded",
    output: record.output,
    stdout: record.stdout,
    stderr: record.stderr,
    exit_code: record.exit_code,
    execution_time: ms / 1000,
    error: record.error,
    job_type: record.job_type,
    job_id: record.execution_id,
    ...(record.results && { results: record.results }),
    ...(record.results_truncated && { results_truncated: true }),
    ...(record.compile && { compile: record.compile }),
    ...(record.warnings && { warnings: record.warnings }),
  };
}

export function toJobStatus(e: ExecutionRow): JobStatus {
  return {
    job_id: e.id,
    status: e.status,
    created_at: timestamp(e.createdAt),
    started_at: optionalTimestamp(e.startedAt),
    ...(e.cancelRequested && !isTerminal(e.status) && { cancel_requested: true }),
  };
}

export function toQueueStatus(status: ExecutionStatus): QueueStatus {
  if (isTerminal(status)) return "completed";
  return status === "queued" ? "pending" : "running";
}

export function timestamp(epochMs: number): string {
  return new Date(epochMs).toISOString();
}

export function optionalTimestamp(epochMs: number | null): string | null {
  return epochMs === null ? null : timestamp(epochMs);
}

/** Invalid UTF-8 becomes U+FFFD, so that any stream can be shown as JSON. */
function text(bytes: Uint8Array | null): string {
  return bytes === null ? "" : decodeUtf8(bytes);
}

/** It is not parsed: it was checked when it came, and parsing would delay every other request. */
function outputOf(bytes: Uint8Array): JsonObject {
  return new JsonText(withoutMark(text(bytes))) as unknown as JsonObject;
}
