import type {
  AgentStatus,
  Intervals,
  LeasedJob,
  PollReply,
  PollRequest,
  RenewReply,
} from "../shared/lease.ts";
import { decodeUtf8 } from "../shared/bytes.ts";
import { isTerminal } from "../shared/execution.ts";
import type { Deps } from "./deps.ts";
import { resolveJobType } from "./domain/job-types.ts";
import { AppError } from "./errors.ts";
import type { ExecutionRow } from "./store/advance.ts";
import { findAgent, recordAgent } from "./store/agents.ts";
import {
  claimNext,
  expireLeases,
  renewLeases,
  submittedPayloads,
  undeliveredLeases,
  type LeaseTerms,
} from "./store/lease.ts";
import { backstopMs } from "./wait.ts";

/**
 * An agent's long poll: registers the agent, renews its leases, and answers as soon as there is a
 * job for a free slot, a cancellation it has not heard of, or a lease it has lost.
 */
export async function poll(
  deps: Deps,
  request: PollRequest,
  tokenHash: string,
  signal: AbortSignal,
): Promise<PollReply> {
  const { config, notifier, now } = deps;
  const deadline = now() + Math.min(request.wait_s, config.poll_wait_s) * 1000;
  const wakes = notifier.subscribe(["queue", `agent:${request.agent.id}`]);
  try {
    for (;;) {
      const renewed = await renew(deps, request, tokenHash);
      const reply: PollReply = {
        ...renewed,
        cancel: renewed.cancel.filter((id) => !request.cancelling.includes(id)),
        jobs: signal.aborted ? [] : await takeJobs(deps, request),
      };
      const left = deadline - now();
      const hasNews = reply.jobs.length + reply.cancel.length + reply.lost.length > 0;
      if (hasNews || left <= 0 || signal.aborted) return reply;
      await wakes.next(Math.min(left, backstopMs), signal);
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
  const { config, db, now } = deps;
  const known = await findAgent(db, status.agent.id);
  if (known && known.tokenHash !== tokenHash) {
    throw new AppError("forbidden", `Agent ${status.agent.id} presents another token than before.`);
  }
  await recordAgent(db, status, tokenHash, now());
  await sweepLeases(deps);
  const renewed = await renewLeases(db, terms(deps, status.agent.id), status.leases);
  const held = new Set(renewed.map((lease) => lease.leaseId));
  return {
    cancel: renewed.filter((lease) => lease.cancelRequested).map((lease) => lease.leaseId),
    lost: status.leases.filter((id) => !held.has(id)),
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

async function takeJobs(deps: Deps, request: PollRequest): Promise<LeasedJob[]> {
  const { db } = deps;
  const lease = terms(deps, request.agent.id);
  const undelivered = await undeliveredLeases(db, lease, request.leases);
  const free = request.free_slots - undelivered.length;
  const claimed = free > 0 ? await claimNext(db, lease, free) : [];
  return describeJobs(deps, [...undelivered, ...claimed]);
}

async function describeJobs(deps: Deps, executions: ExecutionRow[]): Promise<LeasedJob[]> {
  const payloads = await submittedPayloads(
    deps.db,
    executions.map((execution) => execution.id),
  );
  return executions.flatMap((execution) => {
    const payload = payloads.get(execution.id);
    const jobType = resolveJobType(deps.config, execution.jobType);
    if (!payload || !jobType || execution.leaseId === null) return [];
    return [
      {
        lease_id: execution.leaseId,
        execution_id: execution.id,
        attempt: execution.attempt,
        correlation_id: execution.correlationId,
        job_type: jobType,
        code: decodeUtf8(payload.code),
        input_json: decodeUtf8(payload.input),
        requirements: execution.requirements,
        timeout_s: execution.timeoutS,
        startup_timeout_s: execution.startupTimeoutS,
        caps: {
          stream_bytes: deps.config.max_stdout_bytes,
          artifact_bytes: deps.config.max_artifact_bytes,
        },
      },
    ];
  });
}

function terms({ config, now }: Deps, agentId: string): LeaseTerms {
  const at = now();
  return { agentId, expiresAt: at + config.lease_ttl_s * 1000, now: at };
}

function intervals({ poll_wait_s, lease_ttl_s, renew_every_s }: Deps["config"]): Intervals {
  return { poll_wait_s, lease_ttl_s, renew_every_s };
}
