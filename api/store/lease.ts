import { and, eq, getTableColumns, gt, inArray, isNull, lte, sql, type SQL } from "drizzle-orm";
import { advance, type ExecutionRow } from "./advance.ts";
import type { Database } from "./database.ts";
import { executions, isQueued, isRunning, payloads } from "./schema.ts";
import { listed, query, rowsQuery, type Values } from "./statement.ts";

/** A random UUID (version 4) made by the database, one per row of a statement. */
export const randomUuid = sql<string>`lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`;

/** The plus keeps the index on job types, which leads through all history, out of these queries. */
const unindexedJobType = sql`+${executions.jobType}`;

const executionColumns = getTableColumns(executions);

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
  const values: Values = { agentId, expiresAt, now, count };
  offers.forEach(({ jobType, jobVersion, jobRef }, i) => {
    Object.assign(values, { [`type${i}`]: jobType, [`version${i}`]: jobVersion });
    values[`ref${i}`] = jobRef;
  });
  const claim = claims.get(offers.length) ?? claimOf(offers.length);
  claims.set(offers.length, claim);
  const claimed = await claim(db, values);
  return claimed.sort((a, b) => a.seq - b.seq);
}

type Claim = ReturnType<typeof claimOf>;
const claims = new Map<number, Claim>();

/** The claim of jobs of as many types as there are offers. */
function claimOf(offers: number) {
  const at = Array.from({ length: offers }, (_, i) => i);
  const types = at.map((i) => sql`${sql.placeholder(`type${i}`)}`);
  const next = query
    .select({ seq: executions.seq })
    .from(executions)
    .where(
      and(
        isQueued,
        lte(executions.availableAt, sql.placeholder("now")),
        sql`${unindexedJobType} in (${sql.join(types, sql`, `)})`,
      ),
    )
    .orderBy(executions.seq)
    .limit(sql.placeholder("count"));
  /** What an offer says for the job type of each row. */
  const byJobType = (name: "version" | "ref"): SQL => {
    const cases = at.map((i) => sql`when ${types[i]} then ${sql.placeholder(`${name}${i}`)}`);
    return sql`case ${executions.jobType} ${sql.join(cases, sql` `)} end`;
  };
  return rowsQuery(
    executionColumns,
    query
      .update(executions)
      .set({
        status: "running",
        attempt: sql`${executions.attempt} + 1`,
        leaseId: randomUuid,
        agentId: sql`${sql.placeholder("agentId")}`,
        leaseExpiresAt: sql`${sql.placeholder("expiresAt")}`,
        startedAt: sql`${sql.placeholder("now")}`,
        jobVersion: byJobType("version"),
        jobRef: byJobType("ref"),
      })
      .where(and(isQueued, inArray(executions.seq, next)))
      .returning(),
  );
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
  const found = await missed(db, {
    agentId,
    now,
    held: JSON.stringify(held),
    jobTypes: JSON.stringify(jobTypes),
    count,
  });
  if (found.length === 0) return [];
  const renewed = await db.orm
    .update(executions)
    .set({ leaseExpiresAt: expiresAt })
    .where(
      and(
        isRunning,
        gt(executions.leaseExpiresAt, now),
        isNull(executions.codeStartedAt),
        inArray(
          executions.leaseId,
          found.flatMap(({ leaseId }) => leaseId ?? []),
        ),
      ),
    )
    .returning();
  return renewed.sort((a, b) => a.seq - b.seq);
}

const missed = rowsQuery(
  { leaseId: executions.leaseId },
  query
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(
      and(
        isRunning,
        eq(executions.agentId, sql.placeholder("agentId")),
        gt(executions.leaseExpiresAt, sql.placeholder("now")),
        isNull(executions.codeStartedAt),
        sql`${executions.leaseId} not in ${listed("held")}`,
        sql`${unindexedJobType} in ${listed("jobTypes")}`,
      ),
    )
    .orderBy(executions.seq)
    .limit(sql.placeholder("count")),
);

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
  const renewed = await renewal(db, {
    agentId,
    expiresAt,
    now,
    leaseIds: JSON.stringify(leaseIds),
  });
  return renewed.flatMap(({ leaseId, cancelRequested }) =>
    leaseId === null ? [] : [{ leaseId, cancelRequested }],
  );
}

const renewedColumns = {
  leaseId: executions.leaseId,
  cancelRequested: executions.cancelRequested,
};
const renewal = rowsQuery(
  renewedColumns,
  query
    .update(executions)
    .set({ leaseExpiresAt: sql`${sql.placeholder("expiresAt")}` })
    .where(
      and(
        isRunning,
        // The plus keeps SQLite from the index of holders: the leases are known one by one.
        eq(sql`+${executions.agentId}`, sql.placeholder("agentId")),
        gt(executions.leaseExpiresAt, sql.placeholder("now")),
        sql`${executions.leaseId} in ${listed("leaseIds")}`,
      ),
    )
    .returning(renewedColumns),
);

/** Ends or requeues every execution whose lease has run out, and returns them as they are now. */
export async function expireLeases(db: Database, now: number): Promise<ExecutionRow[]> {
  const due = await overdue(db, { now });
  const expired: ExecutionRow[] = [];
  for (const { id } of due) {
    const result = await advance(db, { id }, { kind: "expire" }, now);
    if (result.kind === "changed") expired.push(result.execution);
  }
  return expired;
}

const overdue = rowsQuery(
  { id: executions.id },
  query
    .select({ id: executions.id })
    .from(executions)
    .where(and(isRunning, lte(executions.leaseExpiresAt, sql.placeholder("now")))),
);

/** Code and input of leased executions, by execution id. */
export async function submittedPayloads(
  db: Database,
  ids: string[],
): Promise<Map<string, { code: Uint8Array; input: Uint8Array }>> {
  if (ids.length === 0) return new Map();
  const rows = await submitted(db, { ids: JSON.stringify(ids) });
  return new Map(rows.map(({ id, ...payload }) => [id, payload]));
}

const submittedColumns = { id: payloads.executionId, code: payloads.code, input: payloads.input };
const submitted = rowsQuery(
  submittedColumns,
  query
    .select(submittedColumns)
    .from(payloads)
    .where(sql`${payloads.executionId} in ${listed("ids")}`),
);
