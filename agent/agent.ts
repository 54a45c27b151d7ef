import type { LeasedBuild, LeasedJob } from "../shared/wire/lease.ts";
import { describeError } from "../shared/log-line.ts";
import { abortable } from "./waiting/abortable.ts";
import { ApiError } from "./api/errors.ts";
import { type BuildDeps, runBuild } from "./build/build.ts";
import type { Client } from "./api/client.ts";
import { keepReady } from "./job/keep-ready.ts";
import { deadline } from "./waiting/clock.ts";
import type { Lease } from "./lease/leases.ts";
import { MISSING_MS, type PollDeps, pollForJobs } from "./lease/poll.ts";
import { renewLeases } from "./lease/renew.ts";
import { type RunDeps, runLease } from "./job/run.ts";
import type { SpoolDir } from "./sandbox/output/spool-dir.ts";

export type AgentDeps = RunDeps &
  BuildDeps &
  Omit<PollDeps, "client" | "start" | "startBuild" | "refuse" | "keepReady"> & {
    readonly client: Client;
    readonly spool: SpoolDir;
    /** Milliseconds that running jobs get after `stop`. */
    readonly drainGraceMs: number;
  };

export type AgentSignals = {
  /** Take no more work, and end once that at hand is done. */
  readonly stop: AbortSignal;
  /** Give up all work and end now. */
  readonly abort: AbortSignal;
};

/** What containers get to go away in when there is no time for anything else. */
const ABORT_GRACE_MS = 2000;
const LEAVE_TIMEOUT_MS = 3000;
/** What the reports of cancelled jobs get: an API that is gone must not keep the agent from ending. */
const LAST_POSTS_MS = 15_000;

/**
 * Works for the API until told to end. Resolves with whether the API knows that it has left.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function runAgent(deps: AgentDeps, { stop, abort }: AgentSignals): Promise<boolean> {
  const end = new AbortController();
  const broken = new AbortController();
  const halt = AbortSignal.any([abort, broken.signal]);
  const fail = (error: unknown): void => broken.abort(error);

  /** With all slots in use no poll brings a job. */
  const mayTake = (): boolean =>
    !stop.aborted &&
    !halt.aborted &&
    deps.leases.free() === 0 &&
    deps.engine.slotsToOffer(1, 1) > 0;

  const background = Promise.all([
    deps.engine.run(end.signal).catch(fail),
    renewLeases(deps, end.signal).catch(fail),
  ]);
  await abortable(deps.engine.firstChecked, halt).catch(() => {});
  await pollForJobs(
    {
      ...deps,
      start: (lease) => void work(deps, lease, mayTake).catch(fail),
      startBuild: (lease) => void workOnBuild(deps, lease).catch(fail),
      refuse: (job) => void refuse(deps, job, halt).catch(fail),
      keepReady: (kinds, signal) => keepReady(deps, kinds, signal),
    },
    AbortSignal.any([stop, halt]),
  ).catch(fail);
  // Nobody comes for what waits any more.
  const emptied = deps.pool.close();
  await drain(deps, halt);
  await abortable(Promise.all([emptied, deps.pool.close()]), halt).catch(() => {});
  const hasLeft = !halt.aborted && (await leave(deps, halt));
  end.abort();
  await background;
  broken.signal.throwIfAborted();
  return hasLeft;
}

/** Runs one job after the other, as long as the result of each brings another. */
async function work(deps: AgentDeps, first: Lease, mayTake: () => boolean): Promise<void> {
  const { leases, changes, clock } = deps;
  for (let lease: Lease | null = first; lease !== null;) {
    const ended: Lease = lease;
    let askedMs = 0;
    const takes = (): boolean => {
      askedMs = clock.nowMs();
      return mayTake();
    };
    lease = null;
    try {
      const [job] = await runLease(deps, ended, takes);
      // One that was long on its way comes again with the next poll, if still leased; or it has come.
      const isNew = job && !leases.has(job.lease_id) && !leases.hasEnded(job.lease_id);
      if (isNew && leases.isFresh(askedMs)) lease = leases.replace(ended, job, askedMs);
    } finally {
      if (lease === null) leases.end(ended);
    }
    if (lease) void clock.sleep(MISSING_MS, lease.drop.signal).then(changes.notify, () => {});
  }
}

async function workOnBuild(deps: AgentDeps, lease: Lease<LeasedBuild>): Promise<void> {
  try {
    await runBuild(deps, lease);
  } finally {
    deps.builds.end(lease);
  }
}

/** Waits for the held leases to end; cancels them after the grace, and drops those that last on, or all on `halt`. */
async function drain(deps: AgentDeps, halt: AbortSignal): Promise<void> {
  const { leases, builds, changes, clock } = deps;
  const idle = changes.waitUntil(() => [leases, builds].every((held) => held.free() === held.size));
  using grace = deadline(clock, deps.drainGraceMs);
  await abortable(idle, AbortSignal.any([halt, grace.signal])).catch(() => {});
  leases.cancelAll();
  builds.cancelAll();
  using lastPosts = deadline(clock, LAST_POSTS_MS);
  await abortable(idle, AbortSignal.any([halt, lastPosts.signal])).catch(() => {});
  leases.dropAll();
  builds.dropAll();
  using hurry = deadline(clock, ABORT_GRACE_MS);
  await abortable(idle, hurry.signal).catch(() => {});
}

/** Hands back a job that must not run here. */
async function refuse(
  { client, log }: AgentDeps,
  { lease_id, correlation_id }: LeasedJob,
  signal: AbortSignal,
): Promise<void> {
  const own = log.with({ correlationId: correlation_id });
  const message = "The agent had no free slot.";
  const error = { type: "service_unavailable", message, phase: "startup" } as const;
  try {
    await client.release(lease_id, { error }, signal);
    own.warn("no free slot: lease handed back");
  } catch (error) {
    if (error instanceof ApiError && error.endsAgent) throw error;
    own.warn("lease not handed back: {reason}", { reason: describeError(error) });
  }
}

async function leave(
  { client, agent, clock, log }: AgentDeps,
  halt: AbortSignal,
): Promise<boolean> {
  using limit = deadline(clock, LEAVE_TIMEOUT_MS);
  try {
    await client.leave(
      { agent_id: agent.id, crashed: false },
      AbortSignal.any([limit.signal, halt]),
    );
    return true;
  } catch (error) {
    log.warn("could not take leave: {reason}", { reason: describeError(error) });
    return false;
  }
}
