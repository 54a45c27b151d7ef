import { and, eq, gt, inArray, isNull, lte, notInArray, sql, type SQL } from "drizzle-orm";
import { advance, type ExecutionRow } from "./advance.ts";
import type { Database } from "./database.ts";
import { executions, isQueued, isRunning, payloads } from "./schema.ts";
import { query, rowsQuery } from "./statement.ts";

/** A random UUID (version 4) made by the database, one per row of a statement. */
export const randomUuid = sql<string>`lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`;

/** The plus keeps the index on job types, which leads through all history, out of these queries. */
const unindexedJobType = sql`+${executions.jobType}`;

export interface LeaseTerms {
  agentId: string;
  expiresAt: number;
  now: number;
}

/** A job type whose jobs may be leased, and what their records say they run on. */
export interface Offer {
  jobType: string;
  jobVersion: string;
  /** Null where the agent will tell. */
  jobRef: string | null;
}

/**
 * Leases up to `count` queued executions of the offered job types, oldest first, and pins what they
 * run on, in one guarded statement.
 */
export async function claimNext(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  count: number,
  offers: Offer[],
): Promise<ExecutionRow[]> {
  if (offers.length === 0 || !(await isAnythingDue(db, now))) return [];
  const jobTypes = offers.map(({ jobType }) => jobType);
  const next = db.orm
    .select({ seq: executions.seq })
    .from(executions)
    .where(
      and(
        isQueued,
        lte(executions.availableAt, now),
        // The plus keeps SQLite from the index of job types, which holds all history.
        inArray(sql`+${executions.jobType}`, jobTypes),
      ),
    )
    .orderBy(executions.seq)
    .limit(count);
  const claimed = await db.orm
    .update(executions)
    .set({
      status: "running",
      attempt: sql`${executions.attempt} + 1`,
      leaseId: randomUuid,
      agentId,
      leaseExpiresAt: expiresAt,
      startedAt: now,
      jobVersion: byJobType(offers, ({ jobVersion }) => jobVersion),
      jobRef: byJobType(offers, ({ jobRef }) => jobRef),
    })
    .where(and(isQueued, inArray(executions.seq, next)))
    .returning();
  return claimed.sort((a, b) => a.seq - b.seq);
}

/** Whether any job waits whose time has come: a read, where a claim would take the writers' lock. */
async function isAnythingDue(db: Database, now: number): Promise<boolean> {
  return (await firstDue(db, { now })).length > 0;
}

const firstDue = rowsQuery(
  { seq: executions.seq },
  query
    .select({ seq: executions.seq })
    .from(executions)
    .where(and(isQueued, lte(executions.availableAt, sql.placeholder("now"))))
    .orderBy(executions.seq)
    .limit(1),
);

/** What an offer says for the job type of each row. */
function byJobType(offers: Offer[], value: (offer: Offer) => string | null): SQL {
  const cases = offers.map((offer) => sql`when ${offer.jobType} then ${value(offer)}`);
  return sql`case ${executions.jobType} ${sql.join(cases, sql` `)} end`;
}

/**
 * Up to `count` leases that this agent was given and does not know of, because the reply was lost
 * on the wire. They are renewed; their code has not begun to run. Whatever cannot be told to the
 * agent, for want of a slot or of its job type, is left to its expiry.
 */
export async function undeliveredLeases(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  held: string[],
  count: number,
  jobTypes: string[],
): Promise<ExecutionRow[]> {
  const missed = db.orm
    .select({ seq: executions.seq })
    .from(executions)
    .where(
      and(
        isRunning,
        eq(executions.agentId, agentId),
        gt(executions.leaseExpiresAt, now),
        isNull(executions.codeStartedAt),
        notInArray(executions.leaseId, held),
        inArray(unindexedJobType, jobTypes),
      ),
    )
    .orderBy(executions.seq)
    .limit(count);
  const renewed = await db.orm
    .update(executions)
    .set({ leaseExpiresAt: expiresAt })
    .where(and(isRunning, inArray(executions.seq, missed)))
    .returning();
  return renewed.sort((a, b) => a.seq - b.seq);
}

/** The leases of an agent whose code has not begun. */
export async function unbegunLeases(db: Database, agentId: string): Promise<string[]> {
  const found = await db.orm
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(and(isRunning, eq(executions.agentId, agentId), isNull(executions.codeStartedAt)));
  return found.flatMap(({ leaseId }) => leaseId ?? []);
}

/** Renews the listed leases that the agent still holds, and returns those. */
export async function renewLeases(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  leaseIds: string[],
): Promise<{ leaseId: string; cancelRequested: boolean }[]> {
  if (leaseIds.length === 0) return [];
  const renewed = await db.orm
    .update(executions)
    .set({ leaseExpiresAt: expiresAt })
    .where(
      and(
        isRunning,
        eq(executions.agentId, agentId),
        gt(executions.leaseExpiresAt, now),
        inArray(executions.leaseId, leaseIds),
      ),
    )
    .returning({ leaseId: executions.leaseId, cancelRequested: executions.cancelRequested });
  return renewed.flatMap(({ leaseId, cancelRequested }) =>
    leaseId === null ? [] : [{ leaseId, cancelRequested }],
  );
}

/** Ends or requeues every execution whose lease has run out, and returns them as they are now. */
export async function expireLeases(db: Database, now: number): Promise<ExecutionRow[]> {
  const due = await db.orm
    .select({ id: executions.id })
    .from(executions)
    .where(and(isRunning, lte(executions.leaseExpiresAt, now)));
  const expired: ExecutionRow[] = [];
  for (const { id } of due) {
    const result = await advance(db, { id }, { kind: "expire" }, now);
    if (result.kind === "changed") expired.push(result.execution);
  }
  return expired;
}

/** Code and input of leased executions, by execution id. */
export async function submittedPayloads(
  db: Database,
  ids: string[],
): Promise<Map<string, { code: Uint8Array; input: Uint8Array }>> {
  if (ids.length === 0) return new Map();
  const rows = await db.orm
    .select({ id: payloads.executionId, code: payloads.code, input: payloads.input })
    .from(payloads)
    .where(inArray(payloads.executionId, ids));
  return new Map(rows.map(({ id, ...payload }) => [id, payload]));
}
