import type { ExecuteRequest, SubmittedJob } from "../../shared/wire/client/submission.ts";
import type { ClientDeps } from "../deps.ts";
import { quotaExceeded } from "../quota.ts";
import { timestamp } from "./record.ts";
import { newExecution, runnableEnvironment, type Origin } from "./new-execution.ts";
import { type AppError, unavailable } from "../errors.ts";
import { fileFinder } from "../files/input-files.ts";
import type { NewInputFile } from "../store/jobs/input-files.ts";
import { checkAvailability } from "./availability.ts";
import { rideOut } from "./ride-out.ts";
import { isStoreOutage } from "../store/outage.ts";
import { findExecution, queuePosition } from "../store/jobs/read.ts";
import {
  type NewExecution,
  submitExecution,
  submittedBytes,
  type Submitted,
} from "../store/jobs/submit.ts";
import { notifyAt } from "./wake-agents.ts";
import { queueFull, idempotencyConflict, databaseFull } from "./refusals.ts";

/**
 * Stores a submission and wakes an agent. When this resolves, the execution survives a crash.
 *
 * @param inherited Files of an earlier execution, instead of the request's.
 * @throws AppError 400 when the job type is unknown or must be built first; 409 when the idempotency key
 *   has another payload or its job was removed; 422 when the timeout is above `max_timeout`; 429 when a
 *   limit of the tenant is reached; 503 when the queue is full or no
 *   agent can run it. A 503 that names no job has stored nothing.
 */
export async function submit(
  deps: ClientDeps,
  request: ExecuteRequest,
  origin: Origin,
  inherited?: NewInputFile[],
): Promise<SubmittedJob> {
  const { config } = deps;
  const environment = await runnableEnvironment(deps, request.job_type);
  const files = inherited
    ? { identities: [], rows: inherited }
    : await fileFinder(deps)(request.files ?? []);
  const execution = await newExecution(deps, request, origin, environment.jobType, files);
  // An obstacle (below: queue size 0) keeps out new executions; a repeated submission still finds its job.
  const { refusal, wait } = await checkAvailability(deps, origin.mode, environment, {
    inputs: execution.inputs ?? null,
    language: execution.program?.language,
  });
  const obstacle = files.problem ?? refusal ?? (await databaseFull(deps));
  return storeSubmission(deps, execution, origin, {
    most: obstacle ? 0 : config.max_queue_size,
    whyFull: async (full) => {
      const more = { jobs: 1, bytes: submittedBytes(execution) };
      return (
        obstacle ?? (await quotaExceeded(deps, more, full)) ?? queueFull(config.max_queue_size)
      );
    },
    wake: () => notifyAt(deps, execution.availableAt),
    wait,
  });
}

interface Place {
  /** Executions that may wait where this one waits. */
  most: number;
  whyFull: (full: Extract<Submitted, { kind: "full" }>) => Promise<AppError>;
  /** Wakes whoever can take it. */
  wake: () => unknown;
  /** Why it waits, if it waits for more than its turn. */
  wait?: string | undefined;
}

/** Stores an execution, or finds the one that has its idempotency key. */
export async function storeSubmission(
  deps: ClientDeps,
  execution: NewExecution,
  origin: Pick<Origin, "correlationId">,
  { most, whyFull, wake, wait }: Place,
): Promise<SubmittedJob> {
  const stored = await submitExecution(deps.db, execution, most).catch((error: unknown) =>
    findSubmission(deps, execution.id, error),
  );
  switch (stored.kind) {
    case "full":
      throw await whyFull(stored);
    case "removed":
      throw idempotencyConflict(stored.id, "was used for job {id}, which was removed");
    case "existing":
      return existingJob(deps, stored, execution.submissionHash, origin, wait);
    case "accepted":
      wake();
      return {
        job_id: execution.id,
        status: "queued",
        created_at: timestamp(execution.createdAt ?? deps.now()),
        queue_position: stored.queuePosition,
        ...(wait !== undefined && { message: wait }),
        correlation_id: origin.correlationId,
      };
  }
}

/** A commit whose answer was lost may have succeeded. Looks for the job once the database answers again. */
async function findSubmission(deps: ClientDeps, id: string, error: unknown): Promise<Submitted> {
  if (!isStoreOutage(error)) throw error;
  const job = await rideOut(deps, () => findExecution(deps.db, id)).catch(() => {
    const detail = `The database is unavailable for the moment. Job ${id} may be stored: look at it before you send the request again.`;
    throw unavailable(detail, 5, { jobId: id, cause: error });
  });
  if (!job) throw error;
  return { kind: "accepted", queuePosition: await queuePosition(deps.db, job) };
}

async function existingJob(
  { db }: ClientDeps,
  existing: { id: string; submissionHash: string },
  submissionHash: string,
  { correlationId }: Pick<Origin, "correlationId">,
  wait: string | undefined,
): Promise<SubmittedJob> {
  const job = await findExecution(db, existing.id);
  if (existing.submissionHash !== submissionHash || !job) {
    throw idempotencyConflict(existing.id, "was used with a different payload, for job {id}");
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
