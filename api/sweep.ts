import type { Deps } from "./deps.ts";
import { sweepLeases } from "./poll.ts";
import { enforceRetention } from "./retention.ts";
import { forgetAgentsUnseenSince } from "./store/agents.ts";
import { pruneDeadLetters } from "./store/dead-letters.ts";
import { sweepBuilds } from "./take-builds.ts";

const hourMs = 3_600_000;

/**
 * What time alone brings about: leases that run out, dead letters and agents that are forgotten,
 * what is kept no longer.
 */
export async function sweep(deps: Deps): Promise<void> {
  const { config, db, now } = deps;
  await sweepLeases(deps);
  await sweepBuilds(deps);
  await pruneDeadLetters(db, now() - config.dlq_retention_days * 24 * hourMs);
  await forgetAgentsUnseenSince(db, now() - hourMs);
  await enforceRetention(deps);
}
