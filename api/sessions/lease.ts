import { and, eq, gt, lte, or, sql, type SQL } from "drizzle-orm";
import type { Config } from "../../shared/config/config.ts";
import { isTerminal } from "../../shared/wire/executions.ts";
import type {
  LeasedSession,
  PollRequest,
  ReleaseReport,
  SessionEnded,
  SessionReady,
} from "../../shared/wire/leases.ts";
import { takesWork } from "../agents/agents.ts";
import type { Offer } from "../agents/claim.ts";
import { leaseLost, requireHeld } from "../agents/posts.ts";
import type { Deps } from "../deps.ts";
import { catalogue } from "../images/sql.ts";
import { digestOf, resolveJobType, toLeasedJobType } from "../jobs/environment.ts";
import { type LeaseTerms, newLease, renewalGain } from "../jobs/lease.ts";
import { type ExecutionRow, spaceOf } from "../jobs/sql.ts";
import { tellEnd, tellFollowers } from "../jobs/wait.ts";
import type { Database } from "../store/database.ts";
import {
  agents,
  executions,
  isHeldSession,
  isOpenSession,
  isQueuedSession,
  sessions,
} from "../store/schema.ts";
import { given, listed, query, rowsQuery } from "../store/statement.ts";
import {
  advanceSession,
  findSessionByLease,
  idleAt,
  type SessionEvent,
  type SessionRow,
} from "./sql.ts";

/** Leases sessions to an agent that has room for them, only of job types that it may run. They need no slot. */
export async function takeSessions(
  deps: Deps,
  { free_sessions = 0, sessions: held = [] }: PollRequest,
  lease: LeaseTerms,
  offers: Offer[],
): Promise<{ leased: LeasedSession[]; isMore: boolean }> {
  const { db } = deps;
  const jobTypes = JSON.stringify(offers.map(({ jobType }) => jobType));
  const isAnyQueued = async () => (await firstQueued(db, { now: lease.now, jobTypes })).length > 0;
  const undelivered = await undeliveredSessions(db, lease, held);
  const free = free_sessions - undelivered.length;
  const isQueued = await isAnyQueued();
  const claimed = isQueued && free > 0 ? await claimSessions(db, lease, free, offers) : [];
  for (const session of claimed) tellSession(deps, { session, calls: [] });
  const config = await catalogue(deps);
  return {
    leased: [...undelivered, ...claimed].flatMap((session) => describe(config, session)),
    isMore: claimed.length > 0 ? await isAnyQueued() : isQueued,
  };
}

function describe(config: Config, session: SessionRow): LeasedSession[] {
  const jobType = resolveJobType(config, session.jobType);
  if (session.leaseId === null || !jobType) return [];
  return [
    {
      lease_id: session.leaseId,
      session_id: session.id,
      attempt: session.attempt,
      correlation_id: session.correlationId,
      tenant: session.tenant,
      job_type: toLeasedJobType(jobType),
      image: session.jobRef === null ? jobType.base_image : digestOf(session.jobRef),
      requirements: config.allow_runtime_requirements ? session.requirements : [],
      env: session.env ?? {},
      startup_timeout_s: session.startupTimeoutS,
      traceparent: session.traceparent,
    },
  ];
}

/** An agent's posts for the lease of a session. They are idempotent, like the posts for an execution. */

/** @throws AppError 403 when the lease belongs to an agent with another token; 409 when it is gone. */
export async function requireSessionLease(
  { db }: Deps,
  leaseId: string,
  tokenHash: string,
): Promise<SessionRow> {
  return requireHeld(db, await findSessionByLease(db, leaseId), leaseId, tokenHash);
}

type Post = Extract<SessionEvent, { leaseId: string }>;

/** Applies a post. Returns false if the lease no longer holds, or the session is in another state. */
export async function applyPost(deps: Deps, event: Post): Promise<boolean> {
  const { db, now } = deps;
  const result = await advanceSession(db, { leaseId: event.leaseId }, event, now());
  if (result.kind === "changed") tellSession(deps, result);
  return result.kind === "changed";
}

/** @throws AppError 409 when the lease is gone. */
export async function recordReady(
  deps: Deps,
  { status }: SessionRow,
  leaseId: string,
  report: SessionReady,
): Promise<void> {
  if (status === "ready") return;
  if (!(await applyPost(deps, { kind: "ready", leaseId, report }))) throw leaseLost(leaseId);
}

/** @throws AppError 409 when the lease is gone, or the session has ended otherwise. */
export async function recordSessionEnd(
  deps: Deps,
  session: SessionRow,
  leaseId: string,
  { reason, error }: SessionEnded,
): Promise<void> {
  if (session.reason === reason) return;
  if (!(await applyPost(deps, { kind: "end", leaseId, reason, error }))) throw leaseLost(leaseId);
}

/** @throws AppError 409 when the lease is gone, or the session was ready. */
export async function releaseSession(
  deps: Deps,
  leaseId: string,
  { error, agent_stops }: ReleaseReport,
): Promise<void> {
  const event = agent_stops
    ? ({ kind: "leave", leaseId } as const)
    : ({ kind: "release", leaseId, error } as const);
  if (!(await applyPost(deps, event))) throw leaseLost(leaseId);
}

/** Ends the sessions whose time is over, and those whose agent is lost; one that was not ready gets another agent. */
export async function sweepSessions(deps: Deps): Promise<void> {
  const { db, now, log } = deps;
  for (const session of await dueSessions(db, { now: now() })) {
    const event = dueEvent(session, now());
    const result = event && (await advanceSession(db, { id: session.id }, event, now()));
    if (result?.kind !== "changed") continue;
    const { id, status, reason, correlationId } = result.session;
    log.with({ correlationId }).info("session {id}: {event}, now {status}", {
      id,
      event: event?.kind,
      status: reason ?? status,
    });
    tellSession(deps, result);
  }
}

/** What time has done to a session; undefined if nothing. */
function dueEvent(session: SessionRow, now: number): SessionEvent | undefined {
  const { leaseExpiresAt, expiresAt } = session;
  if (leaseExpiresAt !== null && leaseExpiresAt <= now) return { kind: "expire" };
  if (expiresAt <= now) return { kind: "lifetime" };
  return idleAt(session) <= now ? { kind: "idle" } : undefined;
}

/** Wakes whoever a change of a session is for: its clients, its agent, agents that may take it, those who wait for its calls. */
export function tellSession(
  deps: Pick<Deps, "notifier" | "now">,
  { session, calls }: { session: SessionRow; calls: ExecutionRow[] },
): void {
  const { notifier } = deps;
  notifier.notify(`session:${session.id}`);
  if (session.status === "queued") notifier.notify("session", 0, session.jobType);
  if (session.agentId !== null) notifier.notify(`agent:${session.agentId}`);
  for (const call of calls) (isTerminal(call.status) ? tellEnd : tellFollowers)(deps, call);
}

/**
 * Wakes who takes a call that waits: the answer to the result of the call before it, if that waits, else the agent's
 * poll. Without an agent, the call is found when the session is ready.
 */
export function wakeForCall(
  { notifier }: Pick<Deps, "notifier">,
  { id, agentId }: Pick<SessionRow, "id" | "agentId">,
): void {
  if (agentId !== null && !notifier.notify(`call:${id}`)) notifier.notify(`agent:${agentId}`);
}

/** Whether a session of these job types waits for an agent. */
const isWaiting = and(
  isQueuedSession,
  gt(sessions.expiresAt, given("now")),
  sql`${sessions.jobType} in ${listed("jobTypes")}`,
);
const firstQueued = rowsQuery(
  query.select({ seq: sessions.seq }).from(sessions).where(isWaiting).limit(1),
);

/**
 * Leases up to `count` queued sessions of the offered job types in one guarded statement: tenants that hold fewer
 * come first, then the oldest.
 */
export async function claimSessions(
  db: Database,
  terms: LeaseTerms,
  count: number,
  offers: Offer[],
): Promise<SessionRow[]> {
  return claim(db, { ...terms, count, offers: JSON.stringify(offers) });
}

const offered = (what: keyof Offer) => sql`(select value ->> ${sql.raw(`'${what}'`)}
  from json_each(${given("offers")}) where value ->> 'jobType' = ${sessions.jobType})`;
const placesOfAgent = spaceOf(
  sql`select tenant from ${sessions} where agent_id = ${given("agentId")} and ${isHeldSession}`,
  sql`${agents.maxSessions}`,
);
/**
 * The first sessions of each tenant: the cost hardly depends on how many wait after them. The last place of an agent
 * is kept for a tenant that holds none, like the last slot: see api/jobs/sql.ts.
 */
const next = sql`(with ${placesOfAgent}
  select seq from (
    select *, row_number() over (order by nth, seq) as place from (
      select first.seq, first.tenant, owner.held + row_number() over (partition by first.tenant order by first.seq) as nth,
        first.tenant not in (select tenant from mine) as is_new,
        row_number() over (partition by first.tenant order by first.seq) as own
      from (
        select tenant, (select count(*) from ${sessions} as held
          where held.tenant = waiting.tenant and held.status <> 'ended' and held.status <> 'queued') as held
        from ${sessions} as waiting where waiting.status = 'queued' group by tenant) as owner
      cross join ${sessions} as first on first.seq in (
        select own.seq from ${sessions} as own
        where own.tenant = owner.tenant and own.status = 'queued' and own.expires_at > ${given("now")}
          and own.job_type in (select value ->> 'jobType' from json_each(${given("offers")}))
        order by own.seq limit ${given("count")}))), space
  where used + place < most or (is_new and own = 1) or newcomers <= is_new
  order by nth, seq limit ${given("count")})`;
const claim = rowsQuery(
  query
    .update(sessions)
    .set({
      status: "starting",
      attempt: sql`${sessions.attempt} + 1`,
      ...newLease,
      jobVersion: offered("jobVersion"),
      jobRef: offered("jobRef"),
    })
    .where(and(isQueuedSession, takesWork(given("agentId")), sql`${sessions.seq} in ${next}`))
    .returning(),
);

const isHeld = and(
  isHeldSession,
  eq(sessions.agentId, given("agentId")),
  gt(sessions.leaseExpiresAt, given("now")),
);

/** Sessions that this agent is to start and does not know, because the reply was lost. */
export async function undeliveredSessions(
  db: Database,
  terms: LeaseTerms,
  held: string[],
): Promise<SessionRow[]> {
  const values = { ...terms, heldSessions: JSON.stringify(held) };
  // Reads first, because an update would take the write lock each time.
  return (await missed(db, values)).length === 0 ? [] : renewMissed(db, values);
}

const isMissed = and(
  isHeld,
  // No parameter, because SQLite would prepare the statement again at each poll. A row of query-plans.test.ts holds that.
  sql`${sessions.status} = 'starting'`,
  sql`${sessions.leaseId} not in ${listed("heldSessions")}`,
);
const missed = rowsQuery(query.select({ id: sessions.id }).from(sessions).where(isMissed));
const anyOf = (condition: SQL | undefined): SQL =>
  sql`exists (select 1 from ${sessions} where ${condition})`;
/** Whether there is a session that an agent may lease, if it has room, or that it is to start and does not know. */
export const isForAgent = sql`((${given("freeSessions")} > 0 and ${anyOf(isWaiting)}) or ${anyOf(isMissed)})`;
const setExpiry = { leaseExpiresAt: sql`${given("expiresAt")}` };
const renewMissed = rowsQuery(query.update(sessions).set(setExpiry).where(isMissed).returning());

/** Renews the listed leases that the agent still holds, as renewLeases does, and returns them. */
export async function renewSessions(
  db: Database,
  terms: LeaseTerms,
  leaseIds: string[],
): Promise<string[]> {
  if (leaseIds.length === 0) return [];
  const values = { ...terms, leaseIds: JSON.stringify(leaseIds) };
  const held = await readListed(db, values);
  const enoughAt = terms.expiresAt - (terms.expiresAt - terms.now) * renewalGain;
  const isDue = held.some(({ leaseExpiresAt }) => (leaseExpiresAt ?? 0) < enoughAt);
  const renewed = isDue ? await renewListed(db, values) : held;
  return renewed.flatMap(({ leaseId }) => leaseId ?? []);
}

const isListed = and(isHeld, sql`${sessions.leaseId} in ${listed("leaseIds")}`);
const { leaseId, leaseExpiresAt } = sessions;
const readListed = rowsQuery(
  query.select({ leaseId, leaseExpiresAt }).from(sessions).where(isListed),
);
const renewListed = rowsQuery(
  query.update(sessions).set(setExpiry).where(isListed).returning({ leaseId, leaseExpiresAt }),
);

/** The sessions that an agent holds. */
export async function sessionsOf(db: Database, agentId: string): Promise<SessionRow[]> {
  return db.orm
    .select()
    .from(sessions)
    .where(and(isHeldSession, eq(sessions.agentId, agentId)));
}

const isUnused = sql`not exists (select 1 from ${executions}
  where ${executions.sessionId} = ${sessions.id} and ${executions.endedAt} is null)`;
/** Open sessions whose lease or lifetime is over, or that were not used for too long. */
export const dueSessions = rowsQuery(
  query
    .select()
    .from(sessions)
    .where(
      and(
        isOpenSession,
        or(
          lte(sessions.leaseExpiresAt, given("now")),
          lte(sessions.expiresAt, given("now")),
          and(
            sql`${sessions.status} = 'ready'`,
            sql`max(${sessions.readyAt}, coalesce(${sessions.usedAt}, 0)) + 1000 * ${sessions.idleTimeoutS} <= ${given("now")}`,
            isUnused,
          ),
        ),
      ),
    ),
);
