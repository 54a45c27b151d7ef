import type { Deps } from "../deps.ts";
import { recordMinute } from "./record-minute.ts";
import { sweepLeases } from "../agents/poll.ts";
import { sweepSessions } from "../sessions/sweep-sessions.ts";
import { enforceRetention } from "./retention.ts";
import { forgetAgents } from "../store/agents/agents.ts";
import { endOverdueJobs } from "../jobs/end-overdue.ts";
import { forgetWindowsBefore } from "../store/rate-windows.ts";
import { sweepBuilds } from "../builds/take-builds.ts";

const hourMs = 3_600_000;

/** Does everything that depends on time alone. */
export async function sweep(deps: Deps): Promise<void> {
  await expire(deps);
  await removeOld(deps);
}

/** Expires leases, ends jobs that waited too long and sessions whose time is over, and forgets silent agents. Clients wait for this. It writes only if something is due. */
export async function expire(deps: Deps): Promise<void> {
  await sweepSessions(deps);
  await sweepLeases(deps);
  await endOverdueJobs(deps);
  await sweepBuilds(deps);
  // An agent whose token was revoked may be waiting in a poll, which must now be refused.
  const gone = await forgetAgents(deps.db, deps.now() - hourMs);
  for (const id of gone) deps.notifier.notify(`agent:${id}`);
}

/** Records the minute and removes old data. Nobody waits for this. Returns whether more is left to remove. */
export async function removeOld(deps: Deps): Promise<boolean> {
  await recordMinute(deps);
  await forgetWindowsBefore(deps.db, deps.now());
  return enforceRetention(deps);
}
