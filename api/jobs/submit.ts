import type { ExecuteRequest, SubmittedJob } from "../../shared/wire/client/submission.ts";
import type { Deps } from "../deps.ts";
import { timestamp } from "./record.ts";
import { newExecution, runnableEnvironment, type Origin } from "./new-execution.ts";
import { AppError, unavailable } from "../errors.ts";
import { fileFinder } from "../files/input-files.ts";
import type { NewInputFile } from "../store/jobs/input-files.ts";
import { checkAvailability } from "./availability.ts";
import { rideOut } from "./ride-out.ts";
import { isStoreOutage } from "../store/outage.ts";
import { findExecution, queuePosition } from "../store/jobs/read.ts";
import { databaseBytes } from "../store/size.ts";
import { submitExecution, type Submitted } from "../store/jobs/submit.ts";

/**
 * Stores a submission and wakes an agent. When this resolves, the execution survives a crash.
 *
 * @param inherited Files of an earlier execution, instead of the request's.
 * @throws AppError 400 when the job type is unknown or must be built first; 409 when the idempotency key
 *   has another payload or its job was removed; 422 when the timeout is above `max_timeout`; 503 when the queue is full or no
 *   agent can run it. A 503 that names no job has stored nothing.
 */
export async function submit(
  deps: Deps,
  request: ExecuteRequest,
  origin: Origin,
  inherited?: NewInputFile[],
): Promise<SubmittedJob> {
  const { config, db, now } = deps;
  const environment = await runnableEnvironment(deps, request.job_type);
  const files = inherited
    ? { identities: [], rows: inherited }
    : await fileFinder(deps)(request.files ?? []);
  const execution = await newExecution(deps, request, origin, environment.jobType, files);
  // An obstacle (below: queue size 0) keeps out new executions; a repeated submission still finds its job.
  const { refusal, wait } = await checkAvailability(
    deps,
    origin.mode,
    environment,
    execution.inputs,
  );
  const obstacle = files.problem ?? refusal ?? (await databaseFull(deps));
  const stored = await submitExecution(db, execution, obstacle ? 0 : config.max_queue_size).catch(
    (error: unknown) => findSubmission(deps, execution.id, error),
  );
  switch (stored.kind) {
    case "queue_full":
      throw obstacle ?? queueFull(config.max_queue_size);
    case "removed":
      throw keyConflict(stored.id, "was used for job {id}, which was removed");
    case "existing":
      return existingJob(deps, stored, execution.submissionHash, origin, wait);
    case "accepted":
      notifyAt(deps, execution.availableAt);
      return {
        job_id: execution.id,
        status: "queued",
        created_at: timestamp(execution.createdAt ?? now()),
        queue_position: stored.queuePosition,
        ...(wait !== undefined && { message: wait }),
        correlation_id: origin.correlationId,
      };
  }
}

/** A commit whose answer was lost may have succeeded. Looks for the job once the database answers again. */
async function findSubmission(deps: Deps, id: string, error: unknown): Promise<Submitted> {
  if (!isStoreOutage(error)) throw error;
  const job = await rideOut(deps, () => findExecution(deps.db, id)).catch(() => {
    const detail = `The database is unavailable for the moment. Job ${id} may be stored: look at it before you send the request again.`;
    throw unavailable(detail, 5, { jobId: id, cause: error });
  });
  if (!job) throw error;
  return { kind: "accepted", queuePosition: await queuePosition(deps.db, job) };
}

/** Only new submissions are refused: stored jobs still run, and their results are accepted. */
export async function databaseFull({ config, db }: Deps): Promise<AppError | undefined> {
  const most = config.max_database_bytes;
  if (most === 0 || (await databaseBytes(db)) < most) return undefined;
  const detail = `The database has reached max_database_bytes (${most}): let old executions go (execution_retention_days), or allow it more.`;
  return unavailable(detail, 60);
}

async function existingJob(
  { db }: Deps,
  existing: { id: string; submissionHash: string },
  submissionHash: string,
  { correlationId }: Origin,
  wait: string | undefined,
): Promise<SubmittedJob> {
  const job = await findExecution(db, existing.id);
  if (existing.submissionHash !== submissionHash || !job) {
    throw keyConflict(existing.id, "was used with a different payload, for job {id}");
  }
  return {
    job_id: job.id,
    status: job.status,
    created_at: timestamp(job.createdAt),
    queue_position: await queuePosition(db, job),
    ...(job.status === "queued" && wait !== undefined && { message: wait }),
    correlation_id: correlationId,
  };
}

export function queueFull(maxQueueSize: number): AppError {
  return unavailable(`The queue is full (max_queue_size ${maxQueueSize}).`, 5);
}

/** The refusal of an idempotency key. `what` says why, with `{id}` for its job. */
export function keyConflict(id: string, what: string): AppError {
  return new AppError(
    "conflict",
    `The idempotency key ${what.replace("{id}", id)}. Use a new key.`,
    {
      existing_job_id: id,
      job_id: id,
    },
  );
}

/** Polls look for jobs every few seconds anyway, so a timer for a later job need not survive a restart. */
const longestTimerMs = 10_000;

/** Wakes an agent when a job may start. */
export function notifyAt({ notifier, now }: Deps, availableAt: number): void {
  const delayMs = availableAt - now();
  if (delayMs <= longestTimerMs) notifier.notify("job", Math.max(0, delayMs));
}
