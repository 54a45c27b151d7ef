import type { ExecutionError } from "../../shared/wire/errors.ts";
import { isTerminal } from "../../shared/wire/execution.ts";
import { releaseBuild } from "../builds/build-posts.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { advance } from "../store/jobs/advance.ts";
import { findAgent, forgetAgent } from "../store/agents/agents.ts";
import { openBuilds } from "../store/builds/builds.ts";
import { unbegunLeases } from "../store/jobs/lease.ts";

const left: ExecutionError = {
  type: "service_unavailable",
  message: "The agent left before the code began.",
  phase: "startup",
};

/**
 * Forgets an agent that takes its leave. What it leased and did not begin goes back to the queue,
 * and so do its builds; code that began stays with its lease.
 *
 * @throws AppError 403 when the agent is known by another token.
 */
export async function leave(deps: Deps, agentId: string, tokenHash: string): Promise<void> {
  const { db, notifier, now } = deps;
  const agent = await findAgent(db, agentId);
  if (!agent) return;
  if (agent.tokenHash !== tokenHash) {
    throw new AppError("forbidden", `Agent ${agentId} presents another token than before.`);
  }
  for (const leaseId of await unbegunLeases(db, agentId)) {
    const event = { kind: "release", leaseId, error: left, retryAt: now() } as const;
    const result = await advance(db, { leaseId }, event, now());
    if (result.kind !== "changed") continue;
    const { id, status } = result.execution;
    notifier.notify(isTerminal(status) ? `execution:${id}` : "job");
  }
  for (const { leaseId, agentId: holder } of await openBuilds(db)) {
    if (leaseId !== null && holder === agentId) await releaseBuild(deps, leaseId, left);
  }
  await forgetAgent(db, agentId);
  // Perhaps nobody is left to take a queued build: whoever waits for one looks.
  for (const { id } of await openBuilds(db)) notifier.notify(`build:${id}`);
}
