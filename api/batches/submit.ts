import type { BatchRequest, SubmittedBatch } from "../../shared/wire/client/batch.ts";
import type { Problem } from "../../shared/wire/errors.ts";
import type { SubmittedJob } from "../../shared/wire/client/submission.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError, problemOf } from "../errors.ts";
import type { Origin } from "../jobs/new-execution.ts";
import { batchTooLarge, quotaExceeded } from "../quota.ts";
import { timestamp } from "../jobs/record.ts";
import { rideOut } from "../jobs/ride-out.ts";
import { notifyAt } from "../jobs/wake-agents.ts";
import { idempotencyConflict, queueFull } from "../jobs/refusals.ts";
import { readStandings, type Standing } from "../store/batches/batches.ts";
import type { BatchItem } from "../store/batches/rows.ts";
import { type StoredBatch, submitBatch } from "../store/batches/submit.ts";
import { submittedBytes } from "../store/jobs/submit.ts";
import { identityOfBatch, prepareJobs, type Prepared } from "./prepare.ts";

/**
 * Stores a batch in one transaction. When this resolves, all of its accepted jobs survive a crash.
 *
 * @throws AppError 409 when the batch's idempotency key has another payload; 422 when an atomic batch can
 *   never be accepted whole; of an atomic batch, the problem of the first job that has one.
 */
export async function submitJobs(
  deps: ClientDeps,
  { jobs, atomic, idempotency_key: key }: BatchRequest,
  origin: Omit<Origin, "mode">,
): Promise<SubmittedBatch> {
  const { config, db, newId, now } = deps;
  const prepared = await prepareJobs(deps, jobs, { ...origin, mode: "async" });
  if (atomic) refuse(prepared.map((one) => ("problem" in one ? one.problem : undefined)));
  const { distinct, firstOf } = withoutRepeats(prepared);
  if (atomic && distinct.length > config.max_queue_size) {
    const why = `the queue holds ${config.max_queue_size} (max_queue_size)`;
    throw batchTooLarge(distinct.length, why);
  }
  const batch = {
    id: newId(),
    keyId: origin.keyId ?? null,
    idempotencyKey: key ?? null,
    submissionHash: await identityOfBatch(deps, jobs, prepared, atomic),
    createdAt: now(),
    isAtomic: atomic,
    items: distinct,
  };
  // Sent again during an outage, because a commit whose answer was lost may have succeeded.
  const stored = await rideOut(deps, () => submitBatch(db, batch, config.max_queue_size));
  if (stored.submissionHash !== batch.submissionHash) {
    const detail = `The idempotency key was used with a different batch, ${stored.id}. Use a new key.`;
    throw new AppError("conflict", detail);
  }
  const outcomes = new Map(stored.outcome.map((outcome) => [outcome.n, outcome]));
  const ids = stored.outcome.flatMap(({ id }) => id ?? []);
  const standings = await rideOut(deps, () => readStandings(db, ids));
  const left = distinct.filter(({ n }) => outcomes.get(n)?.id === null);
  const full =
    left.length > 0 ? await whatIsFull(deps, atomic ? left : left.slice(0, 1), stored) : undefined;
  if (full?.code === "batch_too_large") throw full;
  const answer = (one: Prepared, n: number): SubmittedJob | AppError => {
    if ("problem" in one) return one.problem;
    const first = firstOf.get(n) ?? n;
    const outcome = outcomes.get(first);
    const id = outcome?.id ?? undefined;
    if (id === undefined) return one.refusal ?? full!;
    const isRepeat = first !== n && !isSamePayload(prepared[first], one);
    if (isRepeat || !(outcome?.isAccepted || outcome?.isSame || outcome?.isRemoved)) {
      return idempotencyConflict(id, "was used with a different payload, for job {id}");
    }
    const standing = standings.get(id);
    return standing
      ? toSubmitted(standing, one.wait, origin.correlationId)
      : idempotencyConflict(id, "was used for job {id}, which was removed");
  };
  const answers = prepared.map(answer);
  if (atomic && stored.outcome.some((one) => !one.isAccepted && !one.isSame)) {
    // Jobs without a fault of their own were left out as well: the reason is another job, or the queue.
    refuse(answers.map((one, n) => (outcomes.get(n)?.id ? one : undefined)));
    refuse(answers.map((one, n) => (isBlocked(prepared[n]) ? one : undefined)));
    refuse(answers);
  }
  wakeAgents(deps, distinct);
  return {
    batch_id: stored.id,
    created_at: timestamp(stored.createdAt),
    jobs: answers.map((one): SubmittedJob | Problem =>
      one instanceof AppError ? problemOf(one, origin.correlationId) : one,
    ),
  };
}

/** Of jobs with the same idempotency key only the first is stored; the others get its answer. */
function withoutRepeats(prepared: Prepared[]): {
  distinct: BatchItem[];
  firstOf: Map<number, number>;
} {
  const byKey = new Map<string, number>();
  const firstOf = new Map<number, number>();
  const distinct: BatchItem[] = [];
  for (const [n, one] of prepared.entries()) {
    if ("problem" in one) continue;
    const { execution, refusal } = one;
    const key = execution.idempotencyKey ?? undefined;
    const first = key === undefined ? undefined : byKey.get(key);
    if (first !== undefined) {
      firstOf.set(n, first);
      continue;
    }
    if (key !== undefined) byKey.set(key, n);
    distinct.push({ n, execution, isBlocked: refusal !== undefined });
  }
  return { distinct, firstOf };
}

const isBlocked = (one: Prepared | undefined): boolean =>
  one !== undefined && "refusal" in one && one.refusal !== undefined;

function isSamePayload(first: Prepared | undefined, one: Prepared): boolean {
  if (!first || "problem" in first || "problem" in one) return false;
  return first.execution.submissionHash === one.execution.submissionHash;
}

/** Why there was no room for these items. */
async function whatIsFull(
  deps: ClientDeps,
  items: BatchItem[],
  stored: StoredBatch,
): Promise<AppError> {
  const bytes = items.reduce((sum, { execution }) => sum + submittedBytes(execution), 0);
  const exceeded = await quotaExceeded(deps, { jobs: items.length, bytes }, stored);
  return exceeded ?? queueFull(deps.config.max_queue_size);
}

function toSubmitted(
  { id, status, createdAt, queuePosition }: Standing,
  wait: string | undefined,
  correlationId: string,
): SubmittedJob {
  return {
    job_id: id,
    status,
    created_at: timestamp(createdAt),
    queue_position: queuePosition,
    ...(status === "queued" && wait !== undefined && { message: wait }),
    correlation_id: correlationId,
  };
}

/** @throws AppError of the first job that was refused, with its place in the path of each fault. */
function refuse(answers: unknown[]): void {
  for (const [n, one] of answers.entries()) {
    if (!(one instanceof AppError)) continue;
    const errors = one.extras.errors?.map(({ path, message }) => ({
      path: `jobs.${n}.${path}`,
      message,
    }));
    throw new AppError(
      one.code,
      `The batch is atomic, and jobs.${n} was refused: ${one.message}`,
      { ...one.extras, ...(errors && { errors }) },
      one.headers,
    );
  }
}

function wakeAgents(deps: ClientDeps, items: BatchItem[]): void {
  const times = items.map(({ execution }) => execution.availableAt);
  if (times.length > 0)
    notifyAt(
      deps,
      times.reduce((a, b) => Math.min(a, b)),
    );
}
