import type { Deps } from "./deps.ts";
import { isLive, obstacle, type Obstacle } from "./domain/capacity.ts";
import type { Environment } from "./domain/environment.ts";
import { whyNobodyRuns } from "./domain/placement.ts";
import { readEnvironment } from "./environments.ts";
import type { ExecutionRow } from "./store/advance.ts";
import { agentsSeenSince, type AgentRow } from "./store/agents.ts";

/** Why an execution should not be accepted now, or not be waited for; undefined when it should. */
export async function findObstacle(
  deps: Deps,
  mode: "sync" | "async",
  environment: Environment,
): Promise<Obstacle | undefined> {
  const { config, db, now } = deps;
  const known = await agentsSeenSince(db, 0);
  const found = obstacle(mode, known, config, now());
  if (found || mode === "async") return found;
  const detail = whyNobodyRuns(environment, live(deps, known));
  return detail === undefined ? undefined : { detail, retryAfterS: 5 };
}

/** Why a queued execution waits for more than its turn; undefined when its turn will come. */
export async function whyItWaits(
  deps: Deps,
  { jobType }: ExecutionRow,
): Promise<string | undefined> {
  const environment = await readEnvironment(deps, jobType);
  if (!environment) return `Job type ${jobType} is not configured any more: cancel the job.`;
  return whyNobodyRuns(environment, live(deps, await agentsSeenSince(deps.db, 0)));
}

function live({ config, now }: Deps, known: AgentRow[]): AgentRow[] {
  return known.filter((agent) => isLive(agent, config, now()));
}
