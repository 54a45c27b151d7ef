import { isTerminal } from "../../shared/wire/execution.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError, notFound, unavailable, withJob } from "../errors.ts";
import { readEnvironment } from "./environments.ts";
import { checkAvailability } from "./availability.ts";
import { advance, type Advanced } from "../store/jobs/advance.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { findExecution, type FullExecution, withPayload } from "../store/jobs/read.ts";
import { isStoreOutage } from "../store/outage.ts";
import { rideOut } from "./ride-out.ts";
import { tellEnd } from "./followed.ts";

import { backstopMs } from "../waiting.ts";
import { requireExecution, readAtOnceBytes } from "./read-records.ts";
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
    case "refused":
      if (result.execution.status === "cancelled") return result.execution;
      throw new AppError(
        "conflict",
        `Job ${id} has already finished: ${result.execution.status}.`,
        {
          job_id: id,
        },
      );
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
