import type { LeaveRequest } from "../../shared/wire/agent/lease.ts";
import { giveUpBuild } from "../builds/build-posts.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { findAgent, forgetAgent, markLeft } from "../store/agents/agents.ts";
import { openBuilds } from "../store/builds/builds.ts";
import { tellFreed } from "../jobs/followed.ts";
import { advance } from "../store/jobs/advance.ts";
import { leasesOf } from "../store/jobs/lease.ts";
import { sessionsOf } from "../store/sessions/session-lease.ts";
import { applyPost } from "./session-posts.ts";

/**
 * Frees every lease of an agent whose process has ended. A job whose code had not started when its
 * agent left in order keeps the attempt; every other job loses one. Sessions that were ready end.
 *
 * @throws AppError 403 when the agent is registered with another token.
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
    throw new AppError("forbidden", `Agent ${agent_id} presents a different token than before.`);
  }
  const { name } = agent;
  if (crashed) log.warn("agent {name} ({id}) crashed", { name, id: agent_id });
  // Must come before its leases are freed: a poll of this agent that still waits must lease nothing.
  else await markLeft(db, agent_id, now());
  const kind = crashed ? "crash" : "leave";
  // First, so that a running call ends with its session.
  for (const { leaseId } of await sessionsOf(db, agent_id)) {
    if (leaseId !== null) await applyPost(deps, { kind, leaseId });
  }
  for (const leaseId of await leasesOf(db, agent_id)) await freeJob(deps, { kind, leaseId });
  for (const { leaseId, agentId: holder } of await openBuilds(db)) {
    if (leaseId !== null && holder === agent_id)
      await giveUpBuild(deps, leaseId, { kind, leaseId });
  }
  // If the agent is still alive, its next poll registers it again.
  if (crashed) await forgetAgent(db, agent_id);
  // No agent may be left for a queued build: wakes the requests that wait for it, so that they check.
  for (const { id } of await openBuilds(db)) deps.notifier.notify(`build:${id}`);
}

async function freeJob(
  deps: Deps,
  event: { kind: "leave" | "crash"; leaseId: string },
): Promise<void> {
  const result = await advance(deps.db, { leaseId: event.leaseId }, event, deps.now());
  if (result.kind !== "changed") return;
  tellFreed(deps, result.execution);
}
