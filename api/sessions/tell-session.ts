import { isTerminal } from "../../shared/wire/execution.ts";
import type { Deps } from "../deps.ts";
import { tellEnd, tellFollowers } from "../jobs/followed.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import type { SessionRow } from "../store/sessions/sessions.ts";

/** Wakes whoever a change of a session is for: its clients, its agent, agents that may take it, those who wait for its calls. */
export function tellSession(
  deps: Pick<Deps, "notifier" | "now">,
  { session, calls }: { session: SessionRow; calls: ExecutionRow[] },
): void {
  const { notifier } = deps;
  notifier.notify(`session:${session.id}`);
  if (session.status === "queued") notifier.notify("queue");
  if (session.agentId !== null) notifier.notify(`agent:${session.agentId}`);
  for (const call of calls) (isTerminal(call.status) ? tellEnd : tellFollowers)(deps, call);
}

/**
 * Wakes who takes a call that waits: the answer to the result of the call before it, if that waits, else the agent's
 * poll. Without an agent, the call is found when the session is ready.
 */
export function wakeForCall(
  { notifier }: Pick<Deps, "notifier">,
  { id, agentId }: Pick<SessionRow, "id" | "agentId">,
): void {
  if (agentId !== null && !notifier.notify(`call:${id}`)) notifier.notify(`agent:${agentId}`);
}
