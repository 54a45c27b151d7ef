import { sql, type SQL } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import {
  type AgentStatus,
  intervalsOf,
  type LeasedJob,
  type LeaveRequest,
  type PollReply,
  type PollRequest,
  type RenewReply,
} from "../../shared/wire/leases.ts";
import {
  backstopMs,
  type Deps,
  type Subscription,
  type Topic,
  type Wants,
  watchedMs,
} from "../deps.ts";
import { AppError } from "../errors.ts";
import { buildableBy, giveUpBuild, serveAwaited, takeBuilds } from "../images/builds.ts";
import { isImageAwaited, openBuilds, renewBuilds } from "../images/sql.ts";
import { awaitsImage, type Environment, imageOf, openBuildOf } from "../jobs/environment.ts";
import {
  advance,
  expireLeases,
  isMissed,
  isOverdue,
  leasesOf,
  renewLeases,
} from "../jobs/lease.ts";
import { readEnvironments } from "../jobs/read.ts";
import { isTenantFull } from "../jobs/sql.ts";
import { isFollowed, tellFreed } from "../jobs/wait.ts";
import {
  applyPost,
  isForAgent,
  renewSessions,
  sessionsOf,
  sweepSessions,
  takeSessions,
} from "../sessions/lease.ts";
import {
  builds,
  executions,
  isInLine,
  isQueuedSession,
  isRunningCall,
  isWaitingCall,
  sessions,
} from "../store/schema.ts";
import { given, statement } from "../store/statement.ts";
import { perDatabase } from "../store/tenant.ts";
import {
  type AgentRow,
  forgetAgent,
  isSamePool,
  isSameStatus,
  markLeft,
  recordAgent,
  refuseRevoked,
  touchAgent,
} from "./agents.ts";
import { findAgent, servingKinds } from "./fleet.ts";
import {
  isNextOf,
  isOffered,
  keepReady,
  leaseTerms,
  type Offer,
  offers,
  placedOf,
  takeJobs,
  takeWoken,
  type Todo,
} from "./claim.ts";
import { waysOf } from "./placement.ts";

/**
 * Serves an agent's long poll: registers the agent, renews its leases, and answers as soon as there is
 * a job for a free slot, a build, a session, a call of a session, a new cancellation, or a lease that the agent has lost.
 */
export async function poll(
  deps: Deps,
  request: PollRequest,
  tokenHash: string,
  signal: AbortSignal,
): Promise<PollReply> {
  const { config, db, notifier, now } = deps;
  const deadline = now() + Math.min(request.wait_s, config.poll_wait_s) * 1000;
  const touchEveryMs = Math.min(10_000, (config.liveness_s * 1000) / 3);
  const wakes = notifier.subscribe(topicsOf(request));
  const answer = (reply: PollReply): PollReply => {
    const { jobs, builds, sessions = [] } = reply;
    const hasWork = jobs.length + builds.length + sessions.length > 0;
    // The agent has given up this poll, and its next one brings the work. That one may have looked before the work was
    // leased, so it is woken to look again.
    if (signal.aborted && hasWork) notifier.notify(`agent:${request.agent.id}`);
    return reply;
  };
  try {
    // Asked together: a server of the database answers both at once.
    let [isStored, known] = await Promise.all([
      register(deps, request, tokenHash),
      readKnown(deps, tokenHash),
    ]);
    let seenAt = now();
    let first: { wants: string; askedAt: number | null } | undefined;
    for (; ; known = await readKnown(deps, tokenHash)) {
      const { askedAt } = known;
      const { isMore, reply, wants: wanted } = await look(deps, request, known, signal);
      wakes.wants(wanted);
      wakes.settle("session", isMore.sessions);
      wakes.settle("build", isMore.builds);
      const wants = JSON.stringify(reply.images_wanted);
      first ??= { wants, askedAt };
      const left = deadline - now();
      const { watching = reply.watch } = request;
      const watch = reply.watch?.filter((id) => !watching?.includes(id)) ?? [];
      const { sessions = [] } = reply;
      const changes = [reply.jobs, reply.builds, sessions, reply.cancel, reply.lost, watch];
      if (changes.some(({ length }) => length > 0) || left <= 0 || signal.aborted)
        return answer(reply);
      // `askedAt` is by the clock of the process that asked, which may differ from this one's.
      if (wants !== first.wants || askedAt !== first.askedAt) return reply;
      const lookAt = Math.min(deadline, now() + (deps.isWatched ? watchedMs : backstopMs));
      for (let mustLook = false; !mustLook;) {
        const touchAt = seenAt + (isStored ? touchEveryMs : recordEveryMs);
        const waitMs = Math.max(0, Math.min(lookAt, touchAt) - now());
        const { forJob, isWoken } = await wakes.next(waitMs, signal);
        // Then the rest of the reply has not changed.
        const jobs = forJob ? await takeIfWoken(deps, request, tokenHash, signal, wakes) : [];
        if (jobs.length > 0) return answer({ ...reply, jobs });
        // The agent's next poll looks at once.
        if (!isWoken && now() >= deadline) return reply;
        mustLook = isWoken || lookAt <= touchAt;
        if (now() < touchAt) continue;
        seenAt = now();
        await touchAgent(db, request, seenAt, isStored);
        isStored = true;
      }
    }
  } finally {
    wakes.close();
  }
}

/** Takes jobs for which a poll was woken, and wakes another poll if it leaves some. */
async function takeIfWoken(
  deps: Deps,
  request: PollRequest,
  tokenHash: string,
  signal: AbortSignal,
  wakes: Subscription,
): Promise<LeasedJob[]> {
  let isMore = true;
  try {
    const [, environments] = await Promise.all([
      refuseRevoked(deps, tokenHash),
      readEnvironments(deps),
    ]);
    if (signal.aborted) return [];
    const offered = await offers(deps, placedOf(request), environments);
    const { jobs, isMoreQueued } = await takeWoken(deps, request, offered);
    isMore = isMoreQueued;
    return jobs;
  } finally {
    wakes.settle("job", isMore);
  }
}

/** An agent is woken only for what it has room for. */
function topicsOf({ agent, free_slots, free_builds, free_sessions = 0 }: PollRequest): Topic[] {
  const topics: Topic[] = [`agent:${agent.id}`];
  if (free_slots > 0) topics.push("job");
  if (free_sessions > 0) topics.push("session");
  if (free_builds > 0) topics.push("build");
  return topics.length > 1 ? [...topics, "queue"] : topics;
}

interface Look {
  reply: PollReply;
  /** What the poll is to be woken for. */
  wants: Wants;
  /** Whether anything still waits that the agent could run. */
  isMore: { sessions: boolean; builds: boolean };
}

/** What a look needs to know first; `askedAt` is when the agent's token was asked to change. */
async function readKnown(deps: Deps, tokenHash: string) {
  const [environments, askedAt, open] = await Promise.all([
    readEnvironments(deps),
    refuseRevoked(deps, tokenHash),
    openBuilds(deps.db),
  ]);
  return { environments, askedAt, open };
}

async function look(
  deps: Deps,
  request: PollRequest,
  { environments, askedAt, open }: Awaited<ReturnType<typeof readKnown>>,
  signal: AbortSignal,
): Promise<Look> {
  const unbuilt = environments.filter((one) => awaitsImage(one) && !openBuildOf(one, open));
  const [asked, renewed] = await Promise.all([
    readTodo(deps, request, environments, unbuilt),
    renewHeld(deps, request),
  ]);
  if (asked.overdue) await sweepLeases(deps);
  // What was overdue may be leased again, from now on.
  const todo = asked.overdue ? await readTodo(deps, request, environments) : asked;
  const isRequested = asked.images && (await serveAwaited(deps, unbuilt));
  const lease = leaseTerms(deps, request.agent.id);
  const buildable = request.free_builds > 0 ? await buildableBy(deps, request, environments) : [];
  const [jobs, builds, sessions] = signal.aborted
    ? [[], notAsked, notAsked]
    : await Promise.all([
        takeJobs(deps, request, lease, environments, todo),
        open.length > 0 || isRequested ? takeBuilds(deps, request, lease, buildable) : none,
        todo.sessions ? takeSessions(deps, request, lease, todo.offered) : none,
      ]);
  const reply = {
    ...renewed,
    cancel: renewed.cancel.filter((id) => !request.cancelling.includes(id)),
    images_wanted: imagesOf(environments),
    keep_ready: await keepReady(deps, request, environments),
    jobs,
    builds: builds.leased,
    sessions: sessions.leased,
    ...(askedAt !== null && { rotate: true }),
  };
  const isMore = { sessions: sessions.isMore, builds: builds.isMore };
  return { reply, wants: wantsOf(request, todo.offered, buildable, unbuilt), isMore };
}

/** When each kind of work that waits was told of, and when the next look may be. */
const watches = perDatabase(() => ({ toldAtMs: new Map<string, number>(), nextMs: 0 }));

/**
 * Wakes polls for all that waits, in case nobody was woken for it: its time has come, another process stored it, or who
 * was woken could not take it. So polls need not look by themselves. What goes on waiting is told of every `backstopMs`.
 */
export async function wakeForWaiting(deps: Deps): Promise<void> {
  const { db, notifier, now } = deps;
  const watch = watches(db);
  const atMs = performance.now();
  if (atMs < watch.nextMs) return;
  const { rows } = await db.client.execute(waiting({ now: now() }));
  // It takes long if many jobs wait for their time.
  watch.nextMs = atMs + Math.min(backstopMs, 20 * (performance.now() - atMs));
  const before = watch.toldAtMs;
  watch.toldAtMs = new Map();
  let isUnheard = false;
  for (const { topic, job_type } of rows) {
    const key = `${topic as string} ${job_type as string}`;
    const toldAtMs = before.get(key);
    const isTold = toldAtMs !== undefined && atMs - toldAtMs < backstopMs;
    watch.toldAtMs.set(key, isTold ? toldAtMs : atMs);
    if (!isTold && !notifier.notify(topic as Topic, 0, job_type)) isUnheard = true;
  }
  // An agent may take it now because another one is silent. This wakes all polls then.
  if (isUnheard) await servingKinds(deps, await readEnvironments(deps));
}

const { availableAt, jobType, sessionId, tenant } = executions;
/** Each type costs one look at the index of the queue. An agent is woken for the next call of a session that it holds. */
const waiting = statement(sql`
  with types as (
    select min(${jobType}) as name from ${executions} where ${isInLine}
    union all
    select (select min(${jobType}) from ${executions} where ${isInLine} and ${jobType} > types.name)
    from types where types.name is not null)
  select 'job' as topic, name as job_type from types where exists (
    select 1 from ${executions} where ${isInLine} and ${jobType} = types.name
      and ${availableAt} <= ${given("now")} and not ${isTenantFull(sql`${tenant}`)})
  union all
  select distinct 'session', job_type from ${sessions}
  where ${isQueuedSession} and ${sessions.expiresAt} > ${given("now")}
  union all
  select distinct 'build', job_type from ${builds} where ${builds.status} = 'queued'
  union all
  select distinct 'agent:' || ${sessions.agentId}, null from ${sessions}
  where ${sessions.id} in (select ${sessionId} from ${executions} where ${isWaitingCall})
    and ${sessions.status} = 'ready' and not exists (
      select 1 from ${executions} where ${isRunningCall} and ${sessionId} = ${sessions.id})`);

const none = { leased: [], isMore: false };
/** Another agent may be there to take what this one has not looked for. */
const notAsked = { leased: [], isMore: true };

const namesOf = (some: Environment[]): string[] => some.map(({ jobType }) => jobType.name);

function wantsOf(
  { free_slots, free_builds, free_sessions = 0, gpus }: PollRequest,
  offered: Offer[],
  buildable: Environment[],
  unbuilt: Environment[],
): Wants {
  // Any agent's look requests the build of an image that work waits for.
  const awaiting = namesOf(unbuilt);
  const typesOf = (offers: Offer[]) =>
    new Set([...offers.map(({ jobType }) => jobType), ...awaiting]);
  const ready = offered.filter((offer) => offer.gpus <= gpus.free);
  return {
    job: { jobTypes: typesOf(ready), atOnce: free_slots },
    session: { jobTypes: typesOf(offered), atOnce: free_sessions },
    build: { jobTypes: new Set(namesOf(buildable)), atOnce: free_builds },
  };
}

/** Reads in one statement what may wait for an agent, so that a poll at rest asks for nothing else. */
export async function readTodo(
  deps: Deps,
  request: PollRequest,
  environments: Environment[],
  unbuilt: Environment[] = [],
): Promise<Todo> {
  const { free_slots, free_sessions = 0, leases, sessions = [], agent } = request;
  const hasRoom = free_slots + free_sessions > 0;
  const offered = hasRoom ? await offers(deps, placedOf(request), environments) : [];
  const { rows } = await deps.db.client.execute(
    todo({
      agentId: agent.id,
      now: deps.now(),
      held: JSON.stringify(leases),
      heldSessions: JSON.stringify(sessions),
      jobTypes: JSON.stringify(offered.map(({ jobType }) => jobType)),
      unbuilt: JSON.stringify(unbuilt.map(({ jobType }) => jobType.name)),
      ways: waysOf(agent.accepts.inputs).join(" "),
      free: free_slots,
      freeSessions: free_sessions,
    }),
  );
  type Answers = [boolean, boolean, boolean, boolean, boolean, boolean];
  const [overdue, missed, due, calls, waiting, images] = Array.from(rows[0]!, Boolean) as Answers;
  return { offered, overdue, missed, due, calls, sessions: waiting, images };
}

const any = (table: SQLiteTable, condition: SQL | undefined): SQL =>
  sql`exists (select 1 from ${table} where ${condition})`;
const todo = statement(sql`select ${any(executions, isOverdue)}, ${any(executions, isMissed)},
  ${any(executions, isOffered)}, ${any(executions, isNextOf(sql`null`))}, ${isForAgent}, ${isImageAwaited}`);

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
    sweepLeases(deps),
  ]);
  return { ...renewed, images_wanted: imagesOf(environments) };
}

function imagesOf(environments: Environment[]): string[] {
  return [...new Set(environments.map(imageOf))];
}

/**
 * Returns false if the number of its ready sandboxes is not stored yet: it changes with each job.
 *
 * @throws AppError 403 when the agent is registered with another token; when it has left, 401 if its token was revoked, else 409.
 */
async function register(deps: Deps, status: AgentStatus, tokenHash: string): Promise<boolean> {
  const { db, now } = deps;
  const known = await findAgent(db, status.agent.id);
  if (known && known.tokenHash !== tokenHash) {
    throw new AppError(
      "forbidden",
      `Agent ${status.agent.id} presents a different token than before.`,
    );
  }
  if (known && known.leftAt !== null) {
    await refuseRevoked(deps, tokenHash);
    throw new AppError("conflict", `Agent ${status.agent.id} has left; a new start has a new id.`);
  }
  if (known && isRecent(known, now()) && isSameStatus(known, status))
    return isSamePool(known, status);
  await recordAgent(db, status, tokenHash, now());
  return true;
}

/** An agent's row is written when its status changes, else at most this often. */
const recordEveryMs = 1000;

function isRecent({ lastSeenAt }: AgentRow, now: number): boolean {
  return now - lastSeenAt < recordEveryMs && lastSeenAt <= now;
}

async function renewHeld(
  deps: Deps,
  { agent, leases, builds, sessions = [] }: AgentStatus,
): Promise<Omit<RenewReply, "images_wanted">> {
  const { config, db, now } = deps;
  if (sessions.length > 0) await sweepSessions(deps);
  const terms = leaseTerms(deps, agent.id);
  const [renewed, ofBuilds, ofSessions] = await Promise.all([
    renewLeases(db, terms, leases),
    renewBuilds(db, terms, builds),
    renewSessions(db, terms, sessions),
  ]);
  const held = new Set([...renewed.map((lease) => lease.leaseId), ...ofBuilds, ...ofSessions]);
  return {
    cancel: renewed.filter((lease) => lease.cancelRequested).map((lease) => lease.leaseId),
    watch: renewed.filter((lease) => isFollowed(lease, now())).map((lease) => lease.leaseId),
    lost: [...leases, ...builds, ...sessions].filter((id) => !held.has(id)),
    intervals: intervalsOf(config),
  };
}

/** Ends or requeues executions whose lease has expired, and wakes the requests that wait for them. */
export async function sweepLeases(deps: Deps): Promise<void> {
  const { db, now, log } = deps;
  for (const execution of await expireLeases(db, now())) {
    log
      .with({ correlationId: execution.correlationId })
      .warn("lease of {id} expired: now {status}", {
        id: execution.id,
        status: execution.status,
      });
    tellFreed(deps, execution);
  }
}

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
  for (const leaseId of await leasesOf(db, agent_id)) {
    const freed = await advance(db, { leaseId }, { kind, leaseId }, now());
    if (freed.kind === "changed") tellFreed(deps, freed.execution);
  }
  for (const { leaseId, agentId: holder } of await openBuilds(db)) {
    if (leaseId !== null && holder === agent_id)
      await giveUpBuild(deps, leaseId, { kind, leaseId });
  }
  // If the agent is still alive, its next poll registers it again.
  if (crashed) await forgetAgent(db, agent_id);
  // No agent may be left for a queued build: wakes the requests that wait for it, so that they check.
  for (const { id } of await openBuilds(db)) deps.notifier.notify(`build:${id}`);
}
