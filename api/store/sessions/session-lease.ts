import { and, eq, gt, lte, or, sql } from "drizzle-orm";
import type { Offer } from "../jobs/claim.ts";
import type { Database } from "../database.ts";
import { takesWork } from "../agents/agents.ts";
import { newLease, renewalGain, type LeaseTerms } from "../jobs/lease.ts";
import { spaceOf } from "../jobs/line.ts";
import {
  agents,
  executions,
  isHeldSession,
  isOpenSession,
  isQueuedSession,
  sessions,
} from "../schema.ts";
import { listed, query, rowsQuery } from "../statement.ts";
import type { SessionRow } from "./sessions.ts";

const given = sql.placeholder;

/** Whether a session waits that agents may take. */
export async function isAnySessionQueued(db: Database, now: number): Promise<boolean> {
  return (await firstQueued(db, { now })).length > 0;
}

const firstQueued = rowsQuery(
  query
    .select({ seq: sessions.seq })
    .from(sessions)
    .where(and(isQueuedSession, gt(sessions.expiresAt, given("now"))))
    .limit(1),
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
 * is kept for a tenant that holds none, like the last slot: see jobs/line.ts.
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
  const values = { ...terms, held: JSON.stringify(held) };
  // Reads first, because an update would take the write lock each time.
  return (await missed(db, values)).length === 0 ? [] : renewMissed(db, values);
}

const isMissed = and(
  isHeld,
  eq(sessions.status, "starting"),
  sql`${sessions.leaseId} not in ${listed("held")}`,
);
const missed = rowsQuery(query.select({ id: sessions.id }).from(sessions).where(isMissed));
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

/** Open sessions whose lease or lifetime is over, or that were not used for too long. */
export async function dueSessions(db: Database, now: number): Promise<SessionRow[]> {
  return due(db, { now });
}

const isUnused = sql`not exists (select 1 from ${executions}
  where ${executions.sessionId} = ${sessions.id} and ${executions.endedAt} is null)`;
const due = rowsQuery(
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
