import type { ClientDeps } from "../deps.ts";
import { AppError, unavailable } from "../errors.ts";
import { databaseBytes } from "../store/size.ts";

/** Refuses new submissions only: stored jobs still run, and their results are accepted. */
export async function databaseFull({ config, db }: ClientDeps): Promise<AppError | undefined> {
  const most = config.max_database_bytes;
  if (most === 0 || (await databaseBytes(db)) < most) return undefined;
  const detail = `The database has reached max_database_bytes (${most}): let old executions go (execution_retention_days), or allow it more.`;
  return unavailable(detail, 60);
}

export function queueFull(maxQueueSize: number): AppError {
  return unavailable(`The queue is full (max_queue_size ${maxQueueSize}).`, 5);
}

/** The refusal of an idempotency key. `what` says why, with `{id}` for its job. */
export function idempotencyConflict(id: string, what: string): AppError {
  return new AppError(
    "conflict",
    `The idempotency key ${what.replace("{id}", id)}. Use a new key.`,
    {
      existing_job_id: id,
      job_id: id,
    },
  );
}
