import type { Deps } from "../deps.ts";
import { sweepLeases } from "../agents/poll.ts";
import { enforceRetention } from "./retention.ts";
import { forgetAgents } from "../store/agents/agents.ts";
import { forgetWindowsBefore } from "../store/rate-windows.ts";
import { sweepBuilds } from "../builds/take-builds.ts";

const hourMs = 3_600_000;

/** All that time alone brings about. */
export async function sweep(deps: Deps): Promise<void> {
  await expire(deps);
  await removeOld(deps);
}

/** Leases that run out: somebody waits for what follows. Where none does, it only reads. */
export async function expire(deps: Deps): Promise<void> {
  await sweepLeases(deps);
  await sweepBuilds(deps);
  // An agent whose token was revoked may be waiting in a poll, which must now be refused.
  const gone = await forgetAgents(deps.db, deps.now() - hourMs);
  for (const id of gone) deps.notifier.notify(`agent:${id}`);
}

/** What is kept no longer: nobody waits for that. Returns whether more of it is left. */
export async function removeOld(deps: Deps): Promise<boolean> {
  await forgetWindowsBefore(deps.db, deps.now());
  return enforceRetention(deps);
}
