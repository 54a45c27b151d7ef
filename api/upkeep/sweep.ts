import type { Deps } from "../deps.ts";
import { sweepLeases } from "../agents/poll.ts";
import { enforceRetention } from "./retention.ts";
import { forgetAgents } from "../store/agents/agents.ts";
import { forgetWindowsBefore } from "../store/rate-windows.ts";
import { sweepBuilds } from "../builds/take-builds.ts";

const hourMs = 3_600_000;

/**
 * What time alone brings about: leases that run out, agents that are forgotten, what is kept no longer.
 */
export async function sweep(deps: Deps): Promise<void> {
  const { db, notifier, now } = deps;
  await sweepLeases(deps);
  await sweepBuilds(deps);
  // One whose token was revoked may be waiting for work: it is to hear of it now.
  for (const id of await forgetAgents(db, now() - hourMs)) notifier.notify(`agent:${id}`);
  await forgetWindowsBefore(db, now());
  await enforceRetention(deps);
}
