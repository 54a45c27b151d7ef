import type { PollRequest, ReadyKind } from "../../shared/wire/agent/lease.ts";
import type { Deps } from "../deps.ts";
import { imageOf, type Environment } from "../domain/environment.ts";
import { defaultJobType, toLeasedJobType } from "../domain/job-types.ts";
import { accepts, isEquipped, isRunnable } from "../domain/agents/placement.ts";
import { jobTypesUsedSince } from "../store/jobs/recent-job-types.ts";

const RECENT_MS = 10 * 60_000;

/** Job types that a new agent should keep containers ready for. Other agents know them from their own jobs. */
export async function keepReady(
  { db, now }: Deps,
  { is_new, agent, gpus }: PollRequest,
  environments: Environment[],
): Promise<ReadyKind[]> {
  if (!is_new) return [];
  const possible = environments.filter(
    (one) => isRunnable(one) && isEquipped({ ...agent, gpus }, one) && accepts(agent, one),
  );
  const names = possible.map(({ jobType }) => jobType.name);
  const used = new Set(await jobTypesUsedSince(db, names, now() - RECENT_MS)).add(defaultJobType);
  return possible
    .filter(({ jobType }) => used.has(jobType.name))
    .map((one) => ({ job_type: toLeasedJobType(one.jobType), image: imageOf(one) }));
}
