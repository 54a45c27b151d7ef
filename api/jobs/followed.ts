import { isTerminal } from "../../shared/wire/execution.ts";
import type { ClientDeps, Deps } from "../deps.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { followExecution } from "../store/jobs/follow.ts";

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

/** Wakes whoever waits for the end of an execution, and the clients that follow it. */
export function tellEnd(deps: Wakes, execution: Followed): void {
  deps.notifier.notify(`execution:${execution.id}`);
  tellFollowers(deps, execution);
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
  const agentId = await db.share(`follow ${id}`, () => followExecution(db, id, until));
  if (isFollowed({ followedUntil }, at)) return false;
  if (agentId !== null) notifier.notify(`agent:${agentId}`);
  return true;
}
