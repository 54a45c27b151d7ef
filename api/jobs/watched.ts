import { isTerminal } from "../../shared/wire/execution.ts";
import type { Deps } from "../deps.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { watchExecution } from "../store/jobs/watch.ts";

/** How long a follower counts after its last renewal. */
const watchedMs = 60_000;
const renewEveryMs = 20_000;

type Watched = Pick<ExecutionRow, "id" | "watchedUntil">;

/** Whether somebody follows an execution's events. */
export function isWatched({ watchedUntil }: Pick<Watched, "watchedUntil">, now: number): boolean {
  return (watchedUntil ?? 0) > now;
}

/** Wakes whoever waits for the end of an execution, and the clients that follow it. */
export function tellEnd(deps: Deps, execution: Watched): void {
  deps.notifier.notify(`execution:${execution.id}`);
  tellWatchers(deps, execution);
}

/** Reports that an execution has lost its lease: it has ended, or can be leased again after `delayMs`. */
export function tellFreed(deps: Deps, execution: ExecutionRow, delayMs = 0): void {
  if (isTerminal(execution.status)) return tellEnd(deps, execution);
  deps.notifier.notify("job", delayMs);
  tellWatchers(deps, execution);
}

/** Wakes the clients that follow an execution. If nobody follows it, nothing is sent. */
export function tellWatchers({ notifier, now }: Deps, execution: Watched): void {
  if (isWatched(execution, now())) notifier.notify(`output:${execution.id}`);
}

/**
 * Keeps an execution watched that has not ended, and tells its agent when that begins. Returns whether it
 * has just begun: what happened before was not told to anybody.
 */
export async function keepWatched(
  { db, notifier, now, shareRead }: Deps,
  { id, watchedUntil }: ExecutionRow,
): Promise<boolean> {
  const at = now();
  const until = at + watchedMs;
  if ((watchedUntil ?? 0) > until - renewEveryMs) return false;
  const agentId = await shareRead(`watch ${id}`, () => watchExecution(db, id, until));
  if (isWatched({ watchedUntil }, at)) return false;
  if (agentId !== null) notifier.notify(`agent:${agentId}`);
  return true;
}
