import type { Deps } from "../deps.ts";
import { endOverdue } from "../store/jobs/overdue.ts";
import { tellEnd } from "./followed.ts";

/** Ends the executions that no agent has leased within their `queue_timeout`. */
export async function endOverdueJobs(deps: Deps): Promise<void> {
  for (const execution of await endOverdue(deps.db, deps.now())) tellEnd(deps, execution);
}
