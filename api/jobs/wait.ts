import { isTerminal } from "../../shared/wire/execution.ts";
import type { Deps } from "../deps.ts";
import { AppError, notFound, unavailable } from "../errors.ts";
import { readEnvironment } from "./environments.ts";
import { checkAvailability } from "./availability.ts";
import { advance, type ExecutionRow } from "../store/jobs/advance.ts";
import { findExecution } from "../store/jobs/read.ts";

/** A wake-up is a hint; the database is asked again at least this often. */
export const backstopMs = 5_000;

/** The execution as it is when it has ended, when `timeoutMs` have passed, or on abort. */
export async function waitForEnd(
  { db, notifier, now }: Deps,
  id: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<ExecutionRow> {
  const deadline = now() + timeoutMs;
  const wakes = notifier.subscribe([`execution:${id}`]);
  try {
    for (;;) {
      const execution = await findExecution(db, id);
      if (!execution) throw notFound(`Job ${id}`);
      const left = deadline - now();
      if (isTerminal(execution.status) || left <= 0 || signal.aborted) return execution;
      await wakes.next(Math.min(left, backstopMs), signal);
    }
  } finally {
    wakes.close();
  }
}

/**
 * Waits for a synchronous execution however long it takes, and cancels it when its client hangs up
 * or when nobody is left to run it.
 *
 * @throws AppError 503 when no agent can run it any more.
 */
export async function waitForSync(
  deps: Deps,
  id: string,
  signal: AbortSignal,
): Promise<ExecutionRow> {
  for (;;) {
    const execution = await waitForEnd(deps, id, backstopMs, signal);
    if (isTerminal(execution.status)) return execution;
    if (signal.aborted) {
      await cancel(deps, id);
      throw new AppError("wait_timeout", "The client closed the connection; its job is cancelled.");
    }
    if (execution.status !== "queued") continue;
    const environment = await readEnvironment(deps, execution.jobType);
    const { refusal: obstacle } = environment
      ? await checkAvailability(deps, "sync", environment)
      : {};
    if (obstacle) {
      await cancel(deps, id);
      throw unavailable(obstacle.detail, obstacle.retryAfterS);
    }
  }
}

/**
 * Cancels a queued execution at once, and asks the agent of a running one to end it.
 *
 * @throws AppError 404 unknown; 409 already finished.
 */
export async function cancel({ db, notifier, now }: Deps, id: string): Promise<ExecutionRow> {
  const result = await advance(db, { id }, { kind: "cancel" }, now());
  switch (result.kind) {
    case "not_found":
      throw notFound(`Job ${id}`);
    case "refused":
      throw new AppError("conflict", `Job ${id} has already finished: ${result.execution.status}.`);
    case "changed":
      notifier.notify(`execution:${id}`);
      if (result.execution.agentId) notifier.notify(`agent:${result.execution.agentId}`);
      return result.execution;
  }
}
