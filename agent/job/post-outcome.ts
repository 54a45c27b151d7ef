import type { Logger } from "@logtape/logtape";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { LeasedJob, ResultReport } from "../../shared/wire/agent/lease.ts";
import { describeError } from "../../shared/log-line.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import type { Lease } from "../lease/leases.ts";
import type { Outcome } from "./outcome.ts";
import { uploadArtifacts } from "./upload.ts";

export type PostDeps = {
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

type ResultOutcome = Extract<Outcome, { kind: "result" }>;

/** Uploads the artifacts. If the agent's disk has lost one, the job has failed: its code must not run a second time. */
async function withUploads(
  deps: PostDeps,
  leaseId: string,
  { result, artifacts }: ResultOutcome,
  signal: AbortSignal,
): Promise<ResultReport> {
  try {
    await uploadArtifacts(deps, leaseId, artifacts, signal);
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
  const error: ExecutionError = { type: "internal_error", message, phase: "execution" };
  return { ...result, status: "failed", error };
}
