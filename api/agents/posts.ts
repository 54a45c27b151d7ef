import { fromBase64 } from "../../shared/bytes.ts";
import { canonicalJsonInPieces, checkJson, JsonError, withoutMark } from "../../shared/json.ts";
import { artifactNameRule, isArtifactName } from "../../shared/names.ts";
import type { OutputReport } from "../../shared/wire/executions.ts";
import type {
  ItemsReport,
  ReleaseReport,
  ResultReport,
  StartedReport,
} from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import { type Deps, type Hashed, UploadMismatch } from "../deps.ts";
import { AppError, notFound, wrongField } from "../errors.ts";
import { fileForAgents, openInputFile, type StoredFile } from "../files/files.ts";
import { artifactKey, contentTypeOf } from "../files/rules.ts";
import { catalogue } from "../images/sql.ts";
import { describeIgnored, describeMissing, explainIgnored } from "../jobs/environment.ts";
import { advance, findLeased, finishExecution, type Leased } from "../jobs/lease.ts";
import {
  findUpload,
  hasRoom,
  recordArtifact,
  type Recorded,
  recordItems,
  recordOutput,
} from "../jobs/output.ts";
import { internalArtifacts } from "../jobs/read.ts";
import { type ExecutionRow, findInputFile, isLeasedRow, type LeasedRow } from "../jobs/sql.ts";
import { newsOf, tellCallers, tellEnd, tellFollowers, tellFreed } from "../jobs/wait.ts";
import type { Database } from "../store/database.ts";
import { findAgent } from "./fleet.ts";

/**
 * An agent's posts for a lease. Each post is idempotent: a repeat with the same body succeeds. A repeat
 * with another body gets 409, and so does any post for a lease that no longer holds.
 */

/** @throws AppError 403 when the lease belongs to an agent with another token; 409 when it is gone. */
export async function requireLease(
  { db }: Deps,
  leaseId: string,
  tokenHash: string,
): Promise<LeasedRow & Leased> {
  const execution = await findLeased(db, { leaseId });
  if (!execution?.agentId || !isLeasedRow(execution)) throw leaseLost(leaseId);
  if (execution.tokenHash !== null && execution.tokenHash !== tokenHash) throw notYours(leaseId);
  return execution;
}

/**
 * Records that the code of an execution has started, on the image that the report names.
 *
 * @throws AppError 409 when the lease is gone, or has been reported with another image.
 */
export async function recordStart(
  { db, now }: Deps,
  execution: LeasedRow,
  report: StartedReport,
): Promise<void> {
  const { leaseId, codeStartedAt, jobRef } = execution;
  if (codeStartedAt !== null) {
    if (jobRef === report.job_ref) return;
    throw new AppError("conflict", `Lease ${leaseId} was reported as started on another image.`);
  }
  const event = { kind: "start", leaseId } as const;
  const columns = { jobRef: report.job_ref };
  const result = await advance(db, { leaseId }, event, now(), { columns }, execution);
  if (result.kind !== "changed") throw leaseLost(leaseId);
}

/**
 * Stores new output of a running execution, for the clients that follow it and in case its agent is lost.
 * Each stream has the same limit as in a result.
 *
 * @throws AppError 409 when the lease is gone, or the output does not continue what is stored; 413 above the limit.
 */
export async function recordLog(
  deps: Deps,
  execution: LeasedRow,
  { parts }: OutputReport,
): Promise<void> {
  // The result has all output, and its chunks are gone.
  if (execution.resultHash !== null) return;
  const { leaseId } = execution;
  const recorded = await recordOutput(
    deps.db,
    { executionId: execution.id, attempt: execution.attempt, leaseId },
    parts.map(({ data_base64, ...part }) => ({ ...part, data: fromBase64(data_base64) })),
    deps.config.max_stdout_bytes,
    deps.now(),
  );
  const [first] = parts;
  refuseUnless(recorded, leaseId, `at ${first?.offset} of ${first?.stream}`);
  if (recorded === "recorded") tellFollowers(deps, execution);
}

/**
 * Stores what the code of a running execution has shown, for the clients that follow it and in case its agent is lost.
 *
 * @throws AppError 409 when the lease is gone, or another item has the number of one of these.
 */
export async function recordShown(
  deps: Deps,
  execution: LeasedRow,
  { items }: ItemsReport,
): Promise<void> {
  const { leaseId } = execution;
  const attempt = { executionId: execution.id, attempt: execution.attempt, leaseId };
  const recorded = await recordItems(deps.db, attempt, items, deps.now());
  refuseUnless(recorded, leaseId, `as item ${items[0]?.number}`);
  if (items.some((item) => "arguments" in item)) tellCallers(deps, execution.id);
  else tellFollowers(deps, execution);
}

/**
 * Returns an execution whose code has not run. It is tried again within a second, or fails.
 *
 * @throws AppError 409 when the lease is gone.
 */
export async function releaseLease(
  deps: Deps,
  leaseId: string,
  report: ReleaseReport,
): Promise<void> {
  const { db, now } = deps;
  const delayMs = report.agent_stops ? 0 : Math.round(200 + Math.random() * 800);
  const event = report.agent_stops
    ? ({ kind: "leave", leaseId } as const)
    : ({ kind: "release", leaseId, error: report.error, retryAt: now() + delayMs } as const);
  const result = await advance(db, { leaseId }, event, now());
  if (result.kind !== "changed") throw leaseLost(leaseId);
  tellFreed(deps, result.execution, delayMs);
}

/**
 * Returns the number of jobs that wait, if this post ended the execution; undefined if it repeats the post that did.
 *
 * @param alongside Called when the result is being stored: a write that it asks for at once comes behind the result, in
 *   the same transaction where the database groups writes.
 */
export async function recordResult(
  deps: Deps,
  execution: ExecutionRow,
  leaseId: string,
  report: ResultReport,
  alongside = (): void => {},
): Promise<number | undefined> {
  const { db, now, sha256 } = deps;
  if (report.output_json !== null) await refuseUnlessObject(report.output_json);
  const hash = await sha256(await canonicalJsonInPieces(report));
  const ignored = deps.config.allow_runtime_requirements
    ? undefined
    : describeIgnored(execution.requirements);
  const { stdout_base64, stderr_base64, output_json, ...rest } = report;
  const error = explainIgnored(rest.error, ignored);
  const missing = ignored ?? describeMissing(error, await catalogue(deps), execution);
  const given = {
    ...rest,
    error,
    warnings: [...(rest.warnings ?? []), ...(missing === undefined ? [] : [missing])],
    output_json,
    stdout: fromBase64(stdout_base64),
    stderr: fromBase64(stderr_base64),
    output: output_json === null ? null : new TextEncoder().encode(output_json),
    hash,
  };
  const finishing = finishExecution(db, leaseId, given, now(), execution);
  if (execution.resultHash === null) alongside();
  const result = await finishing;
  if (result.kind === "changed") {
    tellEnd(deps, result.execution, newsOf(result.execution, given));
    if (result.letsStart === "any") deps.notifier.notify("job");
    else if (result.letsStart === "own") deps.notifier.notify(`agent:${execution.agentId ?? ""}`);
    return result.queued;
  }
  if (result.kind === "not_found" || result.execution.resultHash !== hash) throw leaseLost(leaseId);
  return undefined;
}

async function refuseUnlessObject(text: string): Promise<void> {
  const { jsonDepthMax: depth, resultJsonMaxValues: values } = limits;
  const first = await checkJson(withoutMark(text), { depth, values }).catch((error: unknown) => {
    if (error instanceof JsonError) return "";
    throw error;
  });
  if (first !== "{") throw wrongField("output_json", "must be the text of a JSON object");
}

/** Stores an artifact while it streams in. It becomes visible when the result of its lease is accepted. */
export async function storeUpload(
  { config, db, artifacts, now }: Deps,
  execution: LeasedRow,
  name: string,
  body: ReadableStream<Uint8Array>,
  announced: Hashed,
): Promise<void> {
  const { leaseId } = execution;
  const isReserved = Object.values<string>(internalArtifacts).includes(name);
  if (
    !isArtifactName(name) ||
    isReserved ||
    new TextEncoder().encode(name).length > limits.artifactNameMaxBytes
  ) {
    throw new AppError(
      "invalid_request",
      `The artifact name ${artifactNameRule}, of at most ${limits.artifactNameMaxBytes} bytes, and not ${Object.values(internalArtifacts).join(" or ")}.`,
    );
  }
  const row = {
    executionId: execution.id,
    leaseId,
    name,
    ...announced,
    contentType: contentTypeOf(name),
  };
  const earlier = await findUpload(db, row);
  if (earlier) {
    await body.cancel();
    if (earlier.sha256 === announced.sha256) return;
    return refuseUnless("conflict", leaseId, `as ${name}`);
  }
  if (execution.status !== "running") throw leaseLost(leaseId);
  const max = config.max_artifact_bytes;
  if (!(await hasRoom(db, row, row.sizeBytes, max))) {
    throw new AppError(
      "too_large",
      `With it, the job's artifacts exceed max_artifact_bytes (${max}).`,
    );
  }
  try {
    await artifacts.put(artifactKey(row), body, announced);
  } catch (error) {
    if (!(error instanceof UploadMismatch)) throw error;
    throw new AppError("invalid_request", error.message);
  }
  refuseUnless(await recordArtifact(db, row, max, now()), leaseId, `as ${name}`);
}

/** Shared by the posts for leases of jobs, builds and sessions. */

/**
 * Returns what has a lease.
 *
 * @throws AppError 403 when the lease belongs to an agent with another token; 409 when it is gone.
 */
export async function requireHeld<R extends { agentId: string | null }>(
  db: Database,
  leased: R | undefined,
  leaseId: string,
  tokenHash: string,
): Promise<R> {
  if (!leased?.agentId) throw leaseLost(leaseId);
  const agent = await findAgent(db, leased.agentId);
  if (agent && agent.tokenHash !== tokenHash) throw notYours(leaseId);
  return leased;
}

function notYours(leaseId: string): AppError {
  return new AppError("forbidden", `Lease ${leaseId} belongs to another agent.`);
}

/** @throws AppError 409 or 413 unless the post was recorded. */
export function refuseUnless(recorded: Recorded, leaseId: string, place: string): void {
  if (recorded === "lease_lost") throw leaseLost(leaseId);
  if (recorded === "too_large") {
    throw new AppError("too_large", `Lease ${leaseId} may not post more content ${place}.`);
  }
  if (recorded === "conflict") {
    throw new AppError(
      "conflict",
      `Lease ${leaseId} has already posted different content ${place}.`,
    );
  }
}

export function leaseLost(leaseId: string): AppError {
  return new AppError("lease_lost", `Lease ${leaseId} no longer holds; drop the work.`);
}

/**
 * A file of a leased job, for its agent.
 *
 * @throws AppError 404 when the job has no file with this hash; 409 when the lease is over.
 */
export async function leasedFile(
  { artifacts, db }: Deps,
  { id, leaseId, status }: LeasedRow,
  sha256: string,
): Promise<StoredFile> {
  if (status !== "running") throw leaseLost(leaseId);
  const file = await findInputFile(db, id, { sha256 });
  if (!file) throw notFound(`File ${sha256} of job ${id}`, { job_id: id });
  return fileForAgents(sha256, {
    name: "The file",
    size: file.sizeBytes,
    open: async (range) => {
      const body = await openInputFile(artifacts, file, range);
      if (!body) throw new Error(`the bytes of file ${sha256} of ${id} are missing`);
      return body;
    },
  });
}
