import type { EventEmitter } from "node:events";
import { describeError } from "../shared/log-line.ts";
import type { LeasedBuild, LeasedJob, LeasedSession } from "../shared/wire/leases.ts";
import { type BuildDeps, runBuild } from "./builds/build.ts";
import type { Client } from "./client/client.ts";
import { ApiError } from "./client/http.ts";
import type { SpoolDir } from "./host/files.ts";
import { abortable, type Clock, deadline } from "./waiting.ts";
import { keepReady } from "./work/place.ts";
import type { Lease, Leases } from "./work/leases.ts";
import { MISSING_MS, type PollDeps, pollForJobs, renewLeases } from "./work/poll.ts";
import { runLease } from "./work/run.ts";
import { holdSession, runCall, type SessionDeps } from "./work/session.ts";

export type AgentDeps = SessionDeps &
  BuildDeps &
  Omit<
    PollDeps,
    "client" | "start" | "startBuild" | "startSession" | "startCall" | "refuse" | "keepReady"
  > & {
    readonly client: Client;
    readonly spool: SpoolDir;
    /** Milliseconds that running jobs get after `stop`. */
    readonly drainGraceMs: number;
  };

export type AgentSignals = {
  /** Take no more work; end when the current work is done. */
  readonly stop: AbortSignal;
  /** Give up all work and end now. */
  readonly abort: AbortSignal;
};

/** How long containers may take to go away when the agent aborts. */
const ABORT_GRACE_MS = 2000;
const LEAVE_TIMEOUT_MS = 3000;
/**
 * How long the results of cancelled jobs may take: an unreachable API must not keep the agent
 * alive.
 */
const LAST_POSTS_MS = 15_000;

/**
 * Runs jobs for the API until a signal ends it. Resolves with whether the API knows that the agent
 * has left.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function runAgent(deps: AgentDeps, { stop, abort }: AgentSignals): Promise<boolean> {
  const end = new AbortController();
  const broken = new AbortController();
  const halt = AbortSignal.any([abort, broken.signal]);
  const fail = (error: unknown): void => broken.abort(error);

  /**
   * Whether the answer to a result may bring the next job: only while all slots are in use, when no
   * poll brings one.
   */
  const mayTake = (): boolean =>
    !stop.aborted &&
    !halt.aborted &&
    deps.leases.free() === 0 &&
    deps.engine.slotsToOffer(1, 1) > 0;

  const runJob: Run = (lease, asked) =>
    runLease(deps, lease, () => (asked(), lease.holdsPlace() && mayTake()));
  const graceOver = new AbortController();
  /** The reply to a call's result may bring the next call of the session, even while the agent stops. */
  const runNextCall: Run = (lease, asked) =>
    runCall(deps, lease, () => (asked(), !halt.aborted && !graceOver.signal.aborted));

  const background = Promise.all([
    deps.engine.run(end.signal).catch(fail),
    renewLeases(deps, end.signal).catch(fail),
  ]);
  await abortable(deps.engine.firstChecked, halt).catch(() => {});
  await pollForJobs(
    {
      ...deps,
      start: (lease) => void work(deps, deps.leases, lease, runJob).catch(fail),
      startBuild: (lease) => void workOnBuild(deps, lease).catch(fail),
      startSession: (lease) => void workOnSession(deps, lease).catch(fail),
      startCall: (lease) => void work(deps, deps.calls, lease, runNextCall).catch(fail),
      refuse: (job) => void refuse(deps, job, halt).catch(fail),
      keepReady: (kinds, signal) => keepReady(deps, kinds, signal),
    },
    AbortSignal.any([stop, halt]),
  ).catch(fail);
  // No job will use the ready containers any more.
  const emptied = deps.sandboxes.close();
  await drain(deps, halt, graceOver);
  await abortable(Promise.all([emptied, deps.sandboxes.close()]), halt).catch(() => {});
  const hasLeft = !halt.aborted && (await leave(deps, halt));
  end.abort();
  await background;
  broken.signal.throwIfAborted();
  return hasLeft;
}

/** Runs a job or a call. Returns what the reply to its result brings; `asked` is called before the result is posted. */
type Run = (lease: Lease, asked: () => void) => Promise<readonly LeasedJob[]>;

/** Runs a job, then each next job that the answer to a result brings. */
async function work(
  { changes, clock }: AgentDeps,
  leases: Leases,
  first: Lease,
  run: Run,
): Promise<void> {
  for (let lease: Lease | null = first; lease !== null;) {
    const ended: Lease = lease;
    let askedMs = 0;
    lease = null;
    try {
      const [job] = await run(ended, () => void (askedMs = clock.nowMs()));
      // If the answer took too long, the job is skipped: the next poll lists it again while it is
      // leased.
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

async function workOnSession(deps: AgentDeps, lease: Lease<LeasedSession>): Promise<void> {
  try {
    await holdSession(deps, lease);
  } finally {
    deps.sessions.end(lease);
  }
}

/**
 * Waits for the held leases to end. Sessions end as soon as no call runs. After the grace it cancels all, then drops
 * those still held. `halt` skips the waits.
 */
async function drain(
  deps: AgentDeps,
  halt: AbortSignal,
  graceOver: AbortController,
): Promise<void> {
  const { leases, builds, calls, sessions, changes, clock } = deps;
  const held = [leases, builds, calls, sessions];
  const idle = changes.waitUntil(() => held.every((each) => each.isIdle()));
  sessions.cancelAll();
  using grace = deadline(clock, deps.drainGraceMs);
  await abortable(idle, AbortSignal.any([halt, grace.signal])).catch(() => {});
  graceOver.abort();
  for (const each of held) each.cancelAll();
  using lastPosts = deadline(clock, LAST_POSTS_MS);
  await abortable(idle, AbortSignal.any([halt, lastPosts.signal])).catch(() => {});
  for (const each of held) each.dropAll();
  using hurry = deadline(clock, ABORT_GRACE_MS);
  await abortable(idle, hurry.signal).catch(() => {});
}

/** Hands back a job or a session that must not run here. */
async function refuse(
  { client, log }: AgentDeps,
  work: LeasedJob | LeasedSession,
  signal: AbortSignal,
): Promise<void> {
  const { lease_id, correlation_id } = work;
  const own = log.with({ correlationId: correlation_id });
  const [release, message] =
    "execution_id" in work
      ? [client.release, "The agent had no free slot."]
      : [client.sessionRelease, "The agent had lost the session's lease before it was ready."];
  const error = { type: "service_unavailable", message, phase: "startup" } as const;
  try {
    await release(lease_id, { error }, signal);
    own.warn("lease handed back: {message}", { message });
  } catch (error) {
    if (error instanceof ApiError && error.endsAgent) throw error;
    own.warn("could not hand the lease back: {reason}", { reason: describeError(error) });
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
    log.warn("could not sign off from the API: {reason}", { reason: describeError(error) });
    return false;
  }
}

/** Under npm one Ctrl-C arrives twice, from the terminal and from npm: both count as one. */
const SAME_PRESS_MS = 1000;

/**
 * SIGTERM, SIGINT or the end of the parent process: take no more work. A second signal: end now.
 */
export function listenForStop(
  process: EventEmitter,
  { nowMs }: Pick<Clock, "nowMs">,
): AgentSignals {
  const stop = new AbortController();
  const abort = new AbortController();
  let first: { readonly name: string; readonly atMs: number } | undefined;

  const onSignal = (name: string): void => {
    const isEcho = name === first?.name && nowMs() - first.atMs < SAME_PRESS_MS;
    if (first && !isEcho) abort.abort();
    first ??= { name, atMs: nowMs() };
    stop.abort();
  };
  process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
  process.once("disconnect", () => stop.abort());
  return { stop: stop.signal, abort: abort.signal };
}
