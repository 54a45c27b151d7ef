import { isTerminal } from "../../shared/wire/execution.ts";
import type { LeaveRequest } from "../../shared/wire/lease.ts";
import { giveUpBuild } from "../builds/build-posts.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { findAgent, forgetAgent, markLeft } from "../store/agents/agents.ts";
import { openBuilds } from "../store/builds/builds.ts";
import { advance } from "../store/jobs/advance.ts";
import { leasesOf } from "../store/jobs/lease.ts";

/**
 * Frees all that an agent has leased, as its process is gone. Jobs that an agent returns in order
 * before their code ran keep the attempt; all others have lost one.
 *
 * @throws AppError 403 when the agent is known by another token.
 */
export async function leave(
  deps: Deps,
  { agent_id, crashed }: LeaveRequest,
  tokenHash: string,
): Promise<void> {
  const { db, now, log } = deps;
  const agent = await findAgent(db, agent_id);
  if (!agent) return;
  if (agent.tokenHash !== tokenHash) {
    throw new AppError("forbidden", `Agent ${agent_id} presents another token than before.`);
  }
  const { name } = agent;
  if (crashed) log.warn("agent {name} ({id}) crashed", { name, id: agent_id });
  // Before its leases are freed: a poll of it that still waits must not lease any more.
  else await markLeft(db, agent_id, now());
  const kind = crashed ? "crash" : "leave";
  for (const leaseId of await leasesOf(db, agent_id)) await freeJob(deps, { kind, leaseId });
  for (const { leaseId, agentId: holder } of await openBuilds(db)) {
    if (leaseId !== null && holder === agent_id)
      await giveUpBuild(deps, leaseId, { kind, leaseId });
  }
  // One that was taken for dead and lives is known again by its next poll.
  if (crashed) await forgetAgent(db, agent_id);
  // Perhaps nobody is left to take a queued build: whoever waits for one looks.
  for (const { id } of await openBuilds(db)) deps.notifier.notify(`build:${id}`);
}

async function freeJob(
  { db, notifier, now }: Deps,
  event: { kind: "leave" | "crash"; leaseId: string },
): Promise<void> {
  const result = await advance(db, { leaseId: event.leaseId }, event, now());
  if (result.kind !== "changed") return;
  const { id, status } = result.execution;
  notifier.notify(isTerminal(status) ? `execution:${id}` : "job");
}
