import type {
  AgentStatus,
  Intervals,
  PollReply,
  PollRequest,
  RenewReply,
} from "../shared/lease.ts";
import { isTerminal } from "../shared/execution.ts";
import type { Deps } from "./deps.ts";
import { imageOf, type Environment } from "./domain/environment.ts";
import { readEnvironments } from "./environments.ts";
import { AppError } from "./errors.ts";
import { keepReady } from "./keep-ready.ts";
import { findAgent, recordAgent, saysTheSame, touchAgent, type AgentRow } from "./store/agents.ts";
import { renewBuilds } from "./store/build-lease.ts";
import { expireLeases, renewLeases, type LeaseTerms } from "./store/lease.ts";
import { takeBuilds } from "./take-builds.ts";
import { takeJobs } from "./take-jobs.ts";
import { backstopMs } from "./wait.ts";

/**
 * An agent's long poll: registers the agent, renews its leases, and answers as soon as there is a
 * job for a free slot, a build, a cancellation it has not heard of, or a lease it has lost.
 */
export async function poll(
  deps: Deps,
  request: PollRequest,
  tokenHash: string,
  signal: AbortSignal,
): Promise<PollReply> {
  const { config, db, notifier, now } = deps;
  const deadline = now() + Math.min(request.wait_s, config.poll_wait_s) * 1000;
  const wakes = notifier.subscribe(["queue", `agent:${request.agent.id}`]);
  try {
    await register(deps, request, tokenHash);
    let seenAt = now();
    for (;;) {
      const [environments, renewed] = await Promise.all([
        readEnvironments(deps),
        renewHeld(deps, request),
      ]);
      const lease = terms(deps, request.agent.id);
      const [jobs, builds] = signal.aborted
        ? [[], []]
        : await Promise.all([
            takeJobs(deps, request, lease, environments),
            takeBuilds(deps, request, lease, environments),
          ]);
      const cancel = renewed.cancel.filter((id) => !request.cancelling.includes(id));
      const images_wanted = imagesOf(environments);
      const keep_ready = await keepReady(deps, request, environments);
      const reply: PollReply = { ...renewed, cancel, images_wanted, keep_ready, jobs, builds };
      const left = deadline - now();
      const news = [reply.jobs, reply.builds, reply.cancel, reply.lost];
      if (news.some(({ length }) => length > 0) || left <= 0 || signal.aborted) return reply;
      await wakes.next(Math.min(left, backstopMs), signal);
      if (now() - seenAt < recordEveryMs) continue;
      seenAt = now();
      await touchAgent(db, request.agent.id, seenAt);
    }
  } finally {
    wakes.close();
  }
}

/** Registers an agent and renews the leases it lists. */
export async function renew(
  deps: Deps,
  status: AgentStatus,
  tokenHash: string,
): Promise<RenewReply> {
  await register(deps, status, tokenHash);
  const [environments, renewed] = await Promise.all([
    readEnvironments(deps),
    renewHeld(deps, status),
  ]);
  return { ...renewed, images_wanted: imagesOf(environments) };
}

function imagesOf(environments: Environment[]): string[] {
  return [...new Set(environments.map(imageOf))];
}

/** @throws AppError 403 when the agent is known by another token. */
async function register({ db, now }: Deps, status: AgentStatus, tokenHash: string): Promise<void> {
  const known = await findAgent(db, status.agent.id);
  if (known && known.tokenHash !== tokenHash) {
    throw new AppError("forbidden", `Agent ${status.agent.id} presents another token than before.`);
  }
  if (known && isRecent(known, now()) && saysTheSame(known, status)) return;
  await recordAgent(db, status, tokenHash, now());
}

/** An agent's row is written anew when it says something new, or after this long: not with each poll. */
const recordEveryMs = 1000;

function isRecent({ lastSeenAt }: AgentRow, now: number): boolean {
  return now - lastSeenAt < recordEveryMs && lastSeenAt <= now;
}

async function renewHeld(
  deps: Deps,
  { agent, leases, builds }: AgentStatus,
): Promise<Omit<RenewReply, "images_wanted">> {
  const { config, db } = deps;
  await sweepLeases(deps);
  const renewed = await renewLeases(db, terms(deps, agent.id), leases);
  const held = new Set([
    ...renewed.map((lease) => lease.leaseId),
    ...(await renewBuilds(db, terms(deps, agent.id), builds)),
  ]);
  return {
    cancel: renewed.filter((lease) => lease.cancelRequested).map((lease) => lease.leaseId),
    lost: [...leases, ...builds].filter((id) => !held.has(id)),
    intervals: intervals(config),
  };
}

/** Ends or requeues what an agent let expire, and wakes whoever waits for that. */
export async function sweepLeases({ db, notifier, now, log }: Deps): Promise<void> {
  for (const execution of await expireLeases(db, now())) {
    log
      .with({ correlationId: execution.correlationId })
      .warn("lease of {id} expired: now {status}", {
        id: execution.id,
        status: execution.status,
      });
    notifier.notify(isTerminal(execution.status) ? `execution:${execution.id}` : "queue");
  }
}

function terms({ config, now }: Deps, agentId: string): LeaseTerms {
  const at = now();
  return { agentId, expiresAt: at + config.lease_ttl_s * 1000, now: at };
}

function intervals({ poll_wait_s, lease_ttl_s, renew_every_s }: Deps["config"]): Intervals {
  return { poll_wait_s, lease_ttl_s, renew_every_s };
}
