import { and, eq, gt, inArray, lte, notInArray, or, sql } from "drizzle-orm";
import type { Offer } from "../jobs/claim.ts";
import type { Database } from "../database.ts";
import { takesWork } from "../agents/agents.ts";
import { randomUuid, renewalGain, type LeaseTerms } from "../jobs/lease.ts";
import { executions, isHeldSession, isOpenSession, isQueuedSession, sessions } from "../schema.ts";
import { query, rowsQuery } from "../statement.ts";
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
  { agentId, expiresAt, now }: LeaseTerms,
  count: number,
  offers: Offer[],
): Promise<SessionRow[]> {
  const offered = (what: keyof Offer) => sql`(select value ->> ${sql.raw(`'${what}'`)}
    from json_each(${JSON.stringify(offers)}) where value ->> 'jobType' = ${sessions.jobType})`;
  const next = sql`(select seq from (
    select waiting.seq as seq, row_number() over (partition by waiting.tenant order by waiting.seq) + (
      select count(*) from ${sessions} as held
      where held.tenant = waiting.tenant and held.status <> 'ended' and held.status <> 'queued') as nth
    from ${sessions} as waiting
    where waiting.status = 'queued' and waiting.expires_at > ${now}
      and waiting.job_type in (select value ->> 'jobType' from json_each(${JSON.stringify(offers)})))
    order by nth, seq limit ${count})`;
  return db.orm
    .update(sessions)
    .set({
      status: "starting",
      attempt: sql`${sessions.attempt} + 1`,
      leaseId: randomUuid,
      agentId,
      leaseExpiresAt: expiresAt,
      startedAt: now,
      jobVersion: offered("jobVersion"),
      jobRef: offered("jobRef"),
    })
    .where(and(isQueuedSession, takesWork(agentId), sql`${sessions.seq} in ${next}`))
    .returning();
}

const isHeldBy = ({ agentId, now }: LeaseTerms) =>
  and(isHeldSession, eq(sessions.agentId, agentId), gt(sessions.leaseExpiresAt, now));

/** Sessions that this agent is to start and does not know, because the reply was lost. */
export async function undeliveredSessions(
  db: Database,
  terms: LeaseTerms,
  held: string[],
): Promise<SessionRow[]> {
  const isMissed = and(
    isHeldBy(terms),
    eq(sessions.status, "starting"),
    notInArray(sessions.leaseId, held),
  );
  // Reads first, because an update would take the write lock each time.
  const missed = await db.orm.select({ id: sessions.id }).from(sessions).where(isMissed);
  if (missed.length === 0) return [];
  return db.orm
    .update(sessions)
    .set({ leaseExpiresAt: terms.expiresAt })
    .where(isMissed)
    .returning();
}

/** Renews the listed leases that the agent still holds, as renewLeases does, and returns them. */
export async function renewSessions(
  db: Database,
  terms: LeaseTerms,
  leaseIds: string[],
): Promise<string[]> {
  if (leaseIds.length === 0) return [];
  const isListed = and(isHeldBy(terms), inArray(sessions.leaseId, leaseIds));
  const held = await db.orm
    .select({ leaseId: sessions.leaseId, leaseExpiresAt: sessions.leaseExpiresAt })
    .from(sessions)
    .where(isListed);
  const enoughAt = terms.expiresAt - (terms.expiresAt - terms.now) * renewalGain;
  const isDue = held.some(({ leaseExpiresAt }) => (leaseExpiresAt ?? 0) < enoughAt);
  const renewed = isDue
    ? await db.orm
        .update(sessions)
        .set({ leaseExpiresAt: terms.expiresAt })
        .where(isListed)
        .returning({ leaseId: sessions.leaseId })
    : held;
  return renewed.flatMap(({ leaseId }) => leaseId ?? []);
}

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
