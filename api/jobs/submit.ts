import type { Config } from "../../shared/config/config.ts";
import type { ExecuteRequest, relationships, SubmittedJob } from "../../shared/wire/execution.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import type { Deps } from "../deps.ts";
import type { Unavailable } from "../domain/capacity.ts";
import type { Environment } from "../domain/environment.ts";
import { isRunnable, notBuilt } from "../domain/placement.ts";
import { timestamp } from "./record.ts";
import { canonicalJson } from "../domain/submission.ts";
import { readEnvironment } from "./environments.ts";
import { AppError, unavailable } from "../errors.ts";
import { checkAvailability } from "./availability.ts";
import { rideOut } from "./ride-out.ts";
import { isStoreOutage } from "../store/outage.ts";
import { findExecution, queuePosition } from "../store/jobs/read.ts";
import { databaseBytes } from "../store/size.ts";
import { submitExecution, type NewExecution, type Submitted } from "../store/jobs/submit.ts";

/** Origin of a submission. */
export interface Origin {
  mode: "sync" | "async";
  correlationId: string;
  clientIp: string;
  keyId?: string | undefined;
  lineage?: { parentExecutionId: string; relationship: (typeof relationships)[number] };
}

/**
 * Stores a submission and wakes an agent. When this resolves, the execution survives a crash.
 *
 * @throws AppError 400 when the job type is unknown or must be built first; 409 when the idempotency key
 *   has another payload; 422 when the timeout is above `max_timeout`; 503 when the queue is full or no
 *   agent can run it. A 503 that names no job has stored nothing.
 */
export async function submit(
  deps: Deps,
  request: ExecuteRequest,
  origin: Origin,
): Promise<SubmittedJob> {
  const { config, db, notifier, now } = deps;
  const environment = await runnableEnvironment(deps, request.job_type);
  const execution = await newExecution(deps, request, origin, environment.jobType);
  // An obstacle (below: queue size 0) keeps out new executions; a repeated submission still finds its job.
  const { refusal: obstacle = await databaseFull(deps), wait } = await checkAvailability(
    deps,
    origin.mode,
    environment,
  );
  const stored = await submitExecution(db, execution, obstacle ? 0 : config.max_queue_size).catch(
    (error: unknown) => findSubmission(deps, execution.id, error),
  );
  switch (stored.kind) {
    case "queue_full":
      if (obstacle) throw unavailable(obstacle.detail, obstacle.retryAfterS);
      throw unavailable(`The queue is full (max_queue_size ${config.max_queue_size}).`, 5);
    case "existing":
      return existingJob(deps, stored, execution.submissionHash, origin, wait);
    case "accepted":
      notifier.notify("job");
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
async function databaseFull({ config, db }: Deps): Promise<Unavailable | undefined> {
  const most = config.max_database_bytes;
  if (most === 0 || (await databaseBytes(db)) < most) return undefined;
  const detail = `The database has reached max_database_bytes (${most}): let old executions go (execution_retention_days), or allow it more.`;
  return { detail, retryAfterS: 60 };
}

async function runnableEnvironment(deps: Deps, name: string): Promise<Environment> {
  const environment = await readEnvironment(deps, name);
  if (!environment) throw unknownJobType(deps.config, name);
  if (!isRunnable(environment)) {
    const message = "must be built first";
    throw new AppError("invalid_request", notBuilt(name), {
      errors: [{ path: "job_type", message }],
    });
  }
  return environment;
}

async function newExecution(
  { config, newId, now, sha256 }: Deps,
  request: ExecuteRequest,
  { mode, correlationId, clientIp, keyId, lineage }: Origin,
  jobType: JobType,
): Promise<NewExecution> {
  const timeoutS = request.timeout ?? jobType.timeout;
  if (timeoutS > config.max_timeout) {
    throw new AppError(
      "timeout_too_long",
      `timeout: ${timeoutS} s is above the configured max_timeout of ${config.max_timeout} s.`,
      { errors: [{ path: "timeout", message: `must be at most ${config.max_timeout}` }] },
    );
  }
  const code = encode(request.code);
  const input = encode(JSON.stringify(request.input_data));
  const createdAt = now();
  return {
    id: newId(),
    mode,
    jobType: request.job_type,
    timeoutS,
    startupTimeoutS: request.startup_timeout,
    requirements: request.requirements,
    availableAt: createdAt,
    createdAt,
    code,
    input,
    codeBytes: code.length,
    inputBytes: input.length,
    codeHash: await sha256(code),
    inputHash: await sha256(input),
    submissionHash: await sha256(
      canonicalJson([
        request.code,
        request.input_data,
        request.timeout ?? null,
        request.startup_timeout,
        request.job_type,
        request.requirements,
      ]),
    ),
    idempotencyKey: request.idempotency_key,
    correlationId,
    clientIp,
    keyId,
    priority: jobType.priority,
    ...lineage,
  };
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
    throw new AppError(
      "conflict",
      `The idempotency key was used with a different payload, for job ${existing.id}. Use a new key.`,
      { existing_job_id: existing.id, job_id: existing.id },
    );
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

function unknownJobType(config: Config, name: string): AppError {
  const known = ["default", ...Object.keys(config.job_types)].join(", ");
  return new AppError(
    "invalid_request",
    `job_type: no job type is named ${JSON.stringify(name)}.`,
    {
      errors: [{ path: "job_type", message: `must be one of: ${known}` }],
    },
  );
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
