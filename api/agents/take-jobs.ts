import type { LeasedJob, PollRequest } from "../../shared/wire/agent/lease.ts";
import type { Deps } from "../deps.ts";
import { readEnvironments } from "../jobs/environments.ts";
import { imageOf, pinnedRef, type Environment } from "../domain/environment.ts";
import { resolveJobType } from "../domain/job-types.ts";
import {
  accepts,
  isEquipped,
  mayRun,
  type Placed,
  servingAgents,
} from "../domain/agents/placement.ts";
import type { ExecutionRow } from "../store/jobs/row.ts";
import { listAgents, findAgent } from "../store/agents/agents.ts";
import { claimNext, type Offer } from "../store/jobs/claim.ts";
import { type LeaseTerms, undeliveredCalls, undeliveredLeases } from "../store/jobs/lease.ts";
import { claimCalls } from "../store/sessions/claim-calls.ts";
import { isAnyQueued } from "../store/statistics/queue.ts";
import { describeJobs } from "./describe-jobs.ts";

/** Leases what an agent can run now: the next calls of its sessions, and jobs for its free slots. */
export async function takeJobs(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  environments: Environment[],
): Promise<LeasedJob[]> {
  const calls = await takeCalls(deps, request, lease);
  const jobs = await takeForSlots(deps, request, lease, environments);
  return describeJobs(deps, [...calls, ...jobs]);
}

/** Calls need no slot. An agent that holds no session costs no read. */
async function takeCalls(
  { db }: Deps,
  { sessions = [], leases: held }: PollRequest,
  lease: LeaseTerms,
): Promise<ExecutionRow[]> {
  if (sessions.length === 0) return [];
  const undelivered = await undeliveredCalls(db, lease, held);
  return [...undelivered, ...(await claimCalls(db, lease))];
}

/** Jobs only of types that the agent may run. */
async function takeForSlots(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  environments: Environment[],
): Promise<ExecutionRow[]> {
  const { db } = deps;
  const { free_slots, leases: held } = request;
  if (free_slots === 0) return [];
  const known = environments.map(({ jobType }) => jobType.name);
  const undelivered = await undeliveredLeases(db, lease, held, free_slots, known);
  const room = {
    slots: free_slots - undelivered.length,
    gpus: request.gpus.free - gpusOf(deps, undelivered),
    inputs: request.agent.accepts.inputs,
  };
  const claimed =
    room.slots > 0
      ? await claimNext(db, lease, room, await offers(deps, placedOf(request), environments))
      : [];
  return [...undelivered, ...claimed];
}

/** A client that sends one job after the other sends the next one sooner than this. */
const nextJobMs = 50;

/**
 * Leases what comes after an execution that an agent has just ended: after a call, the next one of its session;
 * after a job, a job for the free slot. If none waits, one may come at once: its client has just been told of the
 * end of the other. Without this, the agent would ask for it with a poll.
 */
export async function takeNext(
  deps: Deps,
  { agentId, sessionId }: Pick<ExecutionRow, "agentId" | "sessionId">,
  signal: AbortSignal,
): Promise<LeasedJob[]> {
  const { db, notifier } = deps;
  if (agentId === null) return [];
  if (sessionId !== null) return takeNextCall(deps, agentId, sessionId, signal);
  const jobs = await takeForSlot(deps, agentId);
  if (jobs.length > 0) return jobs;
  const wakes = notifier.subscribe(["job"]);
  let isUsed = false;
  try {
    await wakes.next(nextJobMs, signal);
    if (signal.aborted || !(await isAnyQueued(db))) return [];
    const next = await takeForSlot(deps, agentId);
    isUsed = !(await isAnyQueued(db));
    return next;
  } finally {
    if (!isUsed) wakes.passOn();
    wakes.close();
  }
}

/** The agent's poll is not woken for a call that this waits for. */
async function takeNextCall(
  deps: Deps,
  agentId: string,
  sessionId: string,
  signal: AbortSignal,
): Promise<LeasedJob[]> {
  const { db, notifier } = deps;
  const claim = () => claimCalls(db, leaseTerms(deps, agentId), sessionId);
  const wakes = notifier.subscribe([`call:${sessionId}`, `session:${sessionId}`]);
  let isUsed = false;
  try {
    let calls = await claim();
    if (calls.length === 0) {
      await wakes.next(nextJobMs, signal);
      // A call that comes after this wakes the poll; one that came before is found here.
      wakes.close();
      if (!signal.aborted) calls = await claim();
    }
    isUsed = !signal.aborted;
    return await describeJobs(deps, calls);
  } finally {
    wakes.close();
    if (!isUsed) notifier.notify(`agent:${agentId}`);
  }
}

/**
 * Takes a job by the status that the agent last sent. It never needs a GPU: the GPU of the previous job is not free
 * until its container is removed.
 */
async function takeForSlot(deps: Deps, agentId: string): Promise<LeasedJob[]> {
  const { db } = deps;
  const agent = await findAgent(db, agentId);
  if (!agent || agent.leftAt !== null || agent.drainingAt !== null) return [];
  const environments = await readEnvironments(deps);
  const offered = await offers(deps, agent, environments);
  const room = { slots: 1, gpus: 0, inputs: agent.accepts.inputs };
  return describeJobs(deps, await claimNext(db, leaseTerms(deps, agentId), room, offered));
}

/** A lease that begins now. */
export function leaseTerms({ config, now }: Deps, agentId: string): LeaseTerms {
  const at = now();
  return { agentId, expiresAt: at + config.lease_ttl_s * 1000, now: at };
}

export function placedOf({ agent: { labels, accepts }, gpus, images }: PollRequest): Placed {
  return { labels, accepts, gpus, images };
}

function gpusOf({ config }: Deps, leased: ExecutionRow[]): number {
  return leased.reduce((sum, { jobType }) => sum + (resolveJobType(config, jobType)?.gpus ?? 0), 0);
}

/** What an agent may run. */
export async function offers(
  { config, db, now }: Deps,
  agent: Placed,
  environments: Environment[],
): Promise<Offer[]> {
  const mayRunAll = environments.every(
    (environment) =>
      agent.images.includes(imageOf(environment)) &&
      accepts(agent, environment) &&
      isEquipped(agent, environment),
  );
  const serving = mayRunAll ? [] : servingAgents(await listAgents(db), config, now());
  return environments
    .filter((environment) => mayRun(agent, environment, serving))
    .map(({ jobType: { name, gpus }, built }) => ({
      jobType: name,
      gpus,
      jobVersion: built?.tag ?? "latest",
      jobRef: built ? pinnedRef(name, built.digest) : null,
    }));
}
