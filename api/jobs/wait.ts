import { and, eq, inArray, isNotNull, lte, sql } from "drizzle-orm";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import { isTerminal } from "../../shared/wire/executions.ts";
import { backstopMs, type ClientDeps, type Deps, type Subscription } from "../deps.ts";
import { AppError, notFound, unavailable, withJob } from "../errors.ts";
import { type Database, isStoreOutage, rideOut } from "../store/database.ts";
import { executions, isInLine, isQueued } from "../store/schema.ts";
import { given, query, rowQuery, rowsQuery } from "../store/statement.ts";
import { advance, type Advanced, type Result } from "./lease.ts";
import { checkAvailability, readAtOnceBytes, readEnvironment, requireExecution } from "./read.ts";
import {
  emptyPayload,
  type Ended,
  executionColumns,
  type ExecutionRow,
  findExecution,
  followExecution,
  type FullExecution,
  withPayload,
} from "./sql.ts";

/**
 * Waits until an execution has ended, `timeoutMs` have passed, or the signal aborts; returns its state then.
 *
 * @throws AppError 401 when the client's key has become void.
 */
export async function waitForEnd(
  deps: ClientDeps,
  id: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<ExecutionRow> {
  const { notifier, now } = deps;
  const deadline = now() + timeoutMs;
  const wakes = notifier.subscribe([`execution:${id}`]);
  try {
    for (;;) {
      const execution = await requireExecution(deps, id);
      const left = deadline - now();
      const overdueInMs = timeToStart(execution) - now();
      if (overdueInMs <= 0) {
        await deps.endOverdue();
        continue;
      }
      if (isTerminal(execution.status) || left <= 0 || signal.aborted) return execution;
      await wakes.next(Math.min(left, backstopMs, overdueInMs), signal);
      await deps.recheck();
    }
  } finally {
    wakes.close();
  }
}

/** Ends an execution that has waited too long for an agent; false if it has not. */
export async function endIfOverdue(deps: ClientDeps, execution: ExecutionRow): Promise<boolean> {
  if (timeToStart(execution) > deps.now()) return false;
  await deps.endOverdue();
  return true;
}

/** When an execution ends unless it is leased; infinite if it has no such time. */
function timeToStart({ status, attempt, startBy }: ExecutionRow): number {
  return status === "queued" && attempt === 0 ? (startBy ?? Infinity) : Infinity;
}

/**
 * Waits at most `timeoutMs` for the end of an execution that is stored. Undefined if it has not ended, or
 * its end cannot be read: its client has its id and can ask again.
 */
export async function waitBriefly(
  deps: ClientDeps,
  id: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<FullExecution | undefined> {
  try {
    const execution = await waitForEnd(deps, id, timeoutMs, signal);
    return isTerminal(execution.status)
      ? await withPayload(deps.db, execution, readAtOnceBytes)
      : undefined;
  } catch (error) {
    if (isStoreOutage(error) || (error instanceof AppError && error.code === "not_found")) {
      return undefined;
    }
    throw error;
  }
}

/**
 * Waits for a synchronous execution without a time limit, also during outages of the database. If its
 * client hangs up or no agent is left to run it, the execution is cancelled. With an idempotency key it
 * continues, because a repeated request may ask for its result.
 *
 * @param onRunning Called when an agent has the job: from then on it is refused only if the service fails.
 * @throws AppError 503 when no agent can run it any more, or the database stays out of reach.
 */
export async function waitForSync(
  deps: ClientDeps,
  id: string,
  hasKey: boolean,
  signal: AbortSignal,
  onRunning = (): void => {},
): Promise<FullExecution> {
  const lookMs = Math.min(backstopMs, deps.silenceMs);
  const giveUp = async () => hasKey || rideOut(deps, () => cancelUnlessEnded(deps, id));
  try {
    for (;;) {
      const execution = await rideOut(deps, () => waitForEnd(deps, id, lookMs, signal));
      if (isTerminal(execution.status)) {
        return await rideOut(deps, () => withPayload(deps.db, execution, readAtOnceBytes));
      }
      if (signal.aborted) {
        if (!(await giveUp())) continue;
        const fate = hasKey ? "goes on" : "is cancelled";
        throw new AppError("wait_timeout", `The client closed the connection; its job ${fate}.`, {
          job_id: id,
        });
      }
      if (execution.status !== "queued") {
        onRunning();
        continue;
      }
      const refusal = await rideOut(deps, () => findRefusal(deps, execution));
      if (refusal) {
        if (!(await giveUp())) continue;
        throw withJob(refusal, id);
      }
    }
  } catch (error) {
    if (error instanceof AppError && error.code === "unauthorized") await giveUp();
    if (!isStoreOutage(error)) throw error;
    const detail = `The database is unavailable for the moment. Job ${id} is stored: GET /jobs/${id}/result has its result.`;
    throw unavailable(detail, 5, { jobId: id, cause: error });
  }
}

/**
 * As `waitForSync`, for a job that `wakes` has watched since before it was stored; the job ends at `startBy` unless it is
 * leased. If this process stores the result, the wake-up brings it, and nothing is read.
 */
export async function waitForWatched(
  deps: ClientDeps,
  { id, startBy, wakes }: { id: string; startBy: number; wakes: Subscription },
  hasKey: boolean,
  signal: AbortSignal,
  onRunning?: () => void,
): Promise<Ended> {
  try {
    const waitMs = Math.min(backstopMs, deps.silenceMs, startBy - deps.now());
    const { news } = await wakes.next(waitMs, signal);
    if (news) {
      await deps.recheck();
      return news as Ended;
    }
  } finally {
    wakes.close();
  }
  return waitForSync(deps, id, hasKey, signal, onRunning);
}

/** Cancels a queued synchronous execution that no agent is left to run, unless it has an idempotency key. */
export async function cancelIfRefused(
  deps: ClientDeps,
  id: string,
  hasKey: boolean,
): Promise<void> {
  const execution = hasKey ? undefined : await findExecution(deps.db, id);
  if (execution?.status !== "queued") return;
  if (await findRefusal(deps, execution)) await cancelUnlessEnded(deps, id);
}

/** False if the execution has already ended; then its result is the answer. */
export async function cancelUnlessEnded(deps: ClientDeps, id: string): Promise<boolean> {
  const result = await requestCancel(deps, id);
  if (result.kind === "not_found") throw notFound(`Job ${id}`);
  return result.kind === "changed";
}

async function findRefusal(
  deps: ClientDeps,
  { jobType, inputs, sessionId }: ExecutionRow,
): Promise<AppError | undefined> {
  // A call waits for its session, which ends if its agent is lost.
  if (sessionId !== null) return undefined;
  const environment = await readEnvironment(deps, jobType);
  return environment && (await checkAvailability(deps, "sync", environment, { inputs })).refusal;
}

/**
 * Cancels a queued execution at once; asks the agent of a running execution to end it. A repeat changes
 * nothing.
 *
 * @throws AppError 404 when it is unknown; 409 when it has finished otherwise.
 */
export async function cancel(deps: ClientDeps, id: string): Promise<ExecutionRow> {
  const result = await requestCancel(deps, id);
  switch (result.kind) {
    case "not_found":
      throw notFound(`Job ${id}`);
    case "refused": {
      if (result.execution.status === "cancelled") return result.execution;
      const detail = `Job ${id} has already finished: ${result.execution.status}.`;
      throw new AppError("conflict", detail, { job_id: id });
    }
    case "changed":
      return result.execution;
  }
}

async function requestCancel(deps: ClientDeps, id: string): Promise<Advanced> {
  const result = await advance(deps.db, { id }, { kind: "cancel" }, deps.now());
  if (result.kind === "changed") {
    if (isTerminal(result.execution.status)) tellEnd(deps, result.execution);
    if (result.execution.agentId) deps.notifier.notify(`agent:${result.execution.agentId}`);
  }
  return result;
}

/** How long a follower counts after its last renewal. */
const followedMs = 60_000;
const renewEveryMs = 20_000;

type Followed = Pick<ExecutionRow, "id" | "followedUntil">;

/** Whether somebody follows an execution's events. */
export function isFollowed(
  { followedUntil }: Pick<Followed, "followedUntil">,
  now: number,
): boolean {
  return (followedUntil ?? 0) > now;
}

type Wakes = Pick<Deps, "notifier" | "now">;

/** Wakes whoever waits for the end of an execution, and the clients that follow it. With `news`, who waits reads nothing. */
export function tellEnd(deps: Wakes, execution: Followed, news?: Ended): void {
  deps.notifier.notify(`execution:${execution.id}`, 0, news);
  tellFollowers(deps, execution);
}

/** What a result says of its execution's end; undefined if the answer needs more than that, or is sent in pieces. */
export function newsOf(execution: ExecutionRow, result: Result): Ended | undefined {
  const { stdout, stderr, output, compile = null } = result;
  const isLarge = [stdout, stderr, output].some((part) => (part?.length ?? 0) > readAtOnceBytes);
  if (execution.results !== null || isLarge) return undefined;
  return { execution, payload: { ...emptyPayload, stdout, stderr, output, compile }, left: {} };
}

/** Reports that an execution has lost its lease: it has ended, or can be leased again after `delayMs`. */
export function tellFreed(deps: Wakes, execution: ExecutionRow, delayMs = 0): void {
  // A slot is free. If the tenant has a limit, another of its jobs may start too.
  deps.notifier.notify("job", delayMs);
  if (isTerminal(execution.status)) tellEnd(deps, execution);
  else tellFollowers(deps, execution);
}

/** Wakes the clients that follow an execution. If nobody follows it, nothing is sent. */
export function tellFollowers({ notifier, now }: Wakes, execution: Followed): void {
  if (isFollowed(execution, now())) notifier.notify(`output:${execution.id}`);
}

/** Wakes those who wait for calls of an execution or for answers to them, whether they follow it or not. */
export function tellCallers({ notifier }: Pick<Wakes, "notifier">, id: string): void {
  notifier.notify(`output:${id}`);
}

/**
 * Keeps an execution followed that has not ended, and tells its agent when that begins. Returns whether it
 * has just begun: what happened before was not told to anybody.
 */
export async function keepFollowed(
  { db, notifier, now }: ClientDeps,
  { id, followedUntil }: ExecutionRow,
): Promise<boolean> {
  const at = now();
  const until = at + followedMs;
  if ((followedUntil ?? 0) > until - renewEveryMs) return false;
  const followed = await db.share(`follow ${id}`, () => followExecution(db, { id, until }));
  if (isFollowed({ followedUntil }, at)) return false;
  if (followed?.agentId) notifier.notify(`agent:${followed.agentId}`);
  return true;
}

/** Ends the executions that no agent has leased within their `queue_timeout`. */
export async function endOverdueJobs(deps: Deps): Promise<void> {
  for (const execution of await endOverdue(deps.db, deps.now())) tellEnd(deps, execution);
}

/**
 * Ends every execution that no agent has leased within its `queue_timeout`, and returns their new state.
 * A claim never leases such an execution, so it does not matter how late this is called.
 */
export async function endOverdue(db: Database, now: number): Promise<ExecutionRow[]> {
  // Reads first, because an update would take the write lock each time.
  return (await findOverdue(db, { now })) ? end(db, { now }) : [];
}

/**
 * Fails the jobs of a type that wait and may start by `until`, and returns their new state. In pieces, because a long
 * queue takes its time.
 */
export async function failWaiting(
  db: Database,
  jobType: string,
  error: ExecutionError,
  now: number,
  until = now,
): Promise<ExecutionRow[]> {
  const failed: ExecutionRow[] = [];
  for (let some = failedAtOnce; some === failedAtOnce;) {
    const rows = await failSome(db, { jobType, error, now, until });
    failed.push(...rows);
    some = rows.length;
  }
  return failed;
}

const failedAtOnce = 500;
const someWaiting = query
  .select({ seq: executions.seq })
  .from(executions)
  .where(
    and(
      isInLine,
      eq(executions.jobType, given("jobType")),
      lte(executions.availableAt, given("until")),
    ),
  )
  .limit(failedAtOnce);
const failSome = rowsQuery(
  query
    .update(executions)
    .set({
      status: "failed",
      error: sql`${sql.param(given("error"), executions.error)}`,
      endedAt: sql`${given("now")}`,
    })
    .where(inArray(executions.seq, someWaiting))
    .returning(executionColumns),
);

const { startBy, attempt, createdAt, runAt, sessionId } = executions;
const isOverdue = and(
  isQueued,
  isNotNull(startBy),
  lte(startBy, given("now")),
  eq(attempt, sql`0`),
);
const findOverdue = rowQuery(
  query.select({ id: executions.id }).from(executions).where(isOverdue).limit(1),
);

// In brackets: SQL joins text before it divides.
const seconds = sql`((${startBy} - max(${createdAt}, coalesce(${runAt}, 0))) / 1000)`;
const nobody = sql`iif(${sessionId} is null, 'No agent took the job', 'The session did not begin the call')`;
const message = sql`${nobody} || ' within its queue_timeout of ' || ${seconds} || ' s.'`;
const end = rowsQuery(
  query
    .update(executions)
    .set({
      status: "timeout",
      error: sql`json_object('type', 'timeout', 'message', ${message}, 'phase', 'startup')`,
      endedAt: sql`${given("now")}`,
    })
    .where(isOverdue)
    .returning(executionColumns),
);
