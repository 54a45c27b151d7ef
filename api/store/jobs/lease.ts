import { and, eq, gt, inArray, isNotNull, isNull, lte, sql } from "drizzle-orm";
import {
  callLostMessage,
  cancelledMessage,
  lostMessage,
  lostOnceMessage,
} from "../../domain/transition.ts";
import { type ExecutionRow, type SubmittedPayload, executionColumns } from "./row.ts";
import { withLoss } from "./attempts.ts";
import type { Database } from "../database.ts";
import { agents, executions, isRunning, payloads } from "../schema.ts";
import { listed, query, rowQuery, rowsQuery } from "../statement.ts";
import { type AnyDb, tenantRows } from "../tenant.ts";

/** A random UUID (version 4) made by the database, one per row of a statement. */
export const randomUuid = sql<string>`lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`;

/** What a claim writes by its terms. */
export const newLease = {
  leaseId: randomUuid,
  agentId: sql`${sql.placeholder("agentId")}`,
  leaseExpiresAt: sql`${sql.placeholder("expiresAt")}`,
  startedAt: sql`${sql.placeholder("now")}`,
};

/** The plus stops SQLite from using the index on job types, which covers all history. */
const unindexedJobType = sql`+${executions.jobType}`;

export interface LeaseTerms {
  agentId: string;
  expiresAt: number;
  now: number;
}

/**
 * Renews and returns up to `count` leases of this agent that it does not know, because the reply was
 * lost. Their code has not started. Leases that the agent cannot get now, because it has no slot or the
 * job type no longer exists, are left to expire.
 */
export async function undeliveredLeases(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  held: string[],
  count: number,
  jobTypes: string[],
): Promise<ExecutionRow[]> {
  const found = await missedJobs(db, {
    agentId,
    now,
    held: JSON.stringify(held),
    jobTypes: JSON.stringify(jobTypes),
    count,
  });
  return renewMissed(db, found, expiresAt, now);
}

/** The same of calls, which need no slot. */
export async function undeliveredCalls(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  held: string[],
): Promise<ExecutionRow[]> {
  const found = await missedCalls(db, { agentId, now, held: JSON.stringify(held) });
  return renewMissed(db, found, expiresAt, now);
}

async function renewMissed(
  db: Database,
  found: { leaseId: string | null }[],
  expiresAt: number,
  now: number,
): Promise<ExecutionRow[]> {
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
    .returning(executionColumns);
  return renewed.sort((a, b) => a.seq - b.seq);
}

const isMissed = and(
  isRunning,
  eq(executions.agentId, sql.placeholder("agentId")),
  gt(executions.leaseExpiresAt, sql.placeholder("now")),
  isNull(executions.codeStartedAt),
  sql`${executions.leaseId} not in ${listed("held")}`,
);
const missedJobs = rowsQuery(
  query
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(
      and(
        isMissed,
        isNull(executions.sessionId),
        sql`${unindexedJobType} in ${listed("jobTypes")}`,
      ),
    )
    .orderBy(executions.seq)
    .limit(sql.placeholder("count")),
);
const missedCalls = rowsQuery(
  query
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(and(isMissed, isNotNull(executions.sessionId))),
);

/** The execution that has or had a lease, and the SHA-256 of its agent's token: null if the agent is unknown. */
export async function findLeased(
  db: Database,
  id: string,
): Promise<(ExecutionRow & { tokenHash: string | null }) | undefined> {
  return leasedBy(db, { id });
}

const leasedBy = rowQuery(
  query
    .select({ ...executionColumns, tokenHash: agents.tokenHash })
    .from(executions)
    .leftJoin(agents, eq(agents.id, executions.agentId))
    .where(eq(executions.leaseId, sql.placeholder("id"))),
);

/** The leases that an agent holds. */
export async function leasesOf(db: Database, agentId: string): Promise<string[]> {
  const found = await db.orm
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(and(isRunning, eq(executions.agentId, agentId)));
  return found.flatMap(({ leaseId }) => leaseId ?? []);
}

/**
 * Renews the listed leases that the agent still holds, and returns them. Leases that would gain little
 * are only read: polls follow each other quickly while jobs are short, and each write costs a commit.
 */
export async function renewLeases(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  leaseIds: string[],
): Promise<{ leaseId: string; cancelRequested: boolean; followedUntil: number | null }[]> {
  if (leaseIds.length === 0) return [];
  const values = { agentId, expiresAt, now, leaseIds: JSON.stringify(leaseIds) };
  const held = await heldLeases(db, values);
  const enoughAt = expiresAt - (expiresAt - now) * renewalGain;
  const isDue = held.some((lease) => (lease.leaseExpiresAt ?? 0) < enoughAt);
  const renewed = isDue ? await renewal(db, values) : held;
  return renewed.flatMap(({ leaseId, cancelRequested, followedUntil }) =>
    leaseId === null ? [] : [{ leaseId, cancelRequested, followedUntil }],
  );
}

/** A lease is renewed once this fraction of its time has passed. Agents allow for ten times as much. */
export const renewalGain = 0.01;

const renewedColumns = {
  leaseId: executions.leaseId,
  cancelRequested: executions.cancelRequested,
  followedUntil: executions.followedUntil,
  leaseExpiresAt: executions.leaseExpiresAt,
};
const isHeld = and(
  isRunning,
  // The plus stops SQLite from using the index on agents: the index on lease ids is better.
  eq(sql`+${executions.agentId}`, sql.placeholder("agentId")),
  gt(executions.leaseExpiresAt, sql.placeholder("now")),
  sql`${executions.leaseId} in ${listed("leaseIds")}`,
);
const heldLeases = rowsQuery(query.select(renewedColumns).from(executions).where(isHeld));
const renewal = rowsQuery(
  query
    .update(executions)
    .set({ leaseExpiresAt: sql`${sql.placeholder("expiresAt")}` })
    .where(isHeld)
    .returning(renewedColumns),
);

/**
 * Ends or requeues every execution whose lease has expired, and returns their new state. One statement
 * does for all of them what `transition` does for one on `expire`.
 */
export async function expireLeases(db: Database, now: number): Promise<ExecutionRow[]> {
  // Reads first, because an update would take the write lock each time.
  return (await overdue(db, { now })) ? expireOverdue(db, { now }) : [];
}

const given = sql.placeholder;
const isOverdue = and(isRunning, lte(executions.leaseExpiresAt, given("now")));
const overdue = rowQuery(
  query.select({ id: executions.id }).from(executions).where(isOverdue).limit(1),
);

const { attempt, maxAttempts, cancelRequested, codeStartedAt } = executions;
const { leaseId, agentId, startedAt, availableAt } = executions;
const isLast = sql`${attempt} >= ${maxAttempts}`;
const lostText = sql`case when ${executions.sessionId} is not null then ${callLostMessage}
  when ${maxAttempts} = 1 then ${lostOnceMessage} else ${lostMessage} end`;
const phase = sql`iif(${codeStartedAt} is null, 'startup', 'execution')`;
const lost = sql`json_object('type', 'internal_error', 'message', ${lostText}, 'phase', ${phase})`;
const cancelled = sql`json_object('type', 'cancelled', 'message', ${cancelledMessage}, 'phase', ${phase})`;
/** Picks one of three values: for a cancelled job, for a job without attempts left, for a job to retry. */
const byFate = (ifCancelled: unknown, ifLost: unknown, ifRetried: unknown) =>
  sql`case when ${cancelRequested} then ${ifCancelled} when ${isLast} then ${ifLost} else ${ifRetried} end`;
const nullIfRetried = (column: unknown) => byFate(column, column, null);

const expireOverdue = rowsQuery(
  query
    .update(executions)
    .set({
      lostAttempts: withLoss({ outcome: "lease_expired", error: null, now: given("now") }),
      status: byFate("cancelled", "failed", "queued"),
      error: byFate(cancelled, lost, null),
      endedAt: byFate(given("now"), given("now"), null),
      availableAt: byFate(availableAt, availableAt, given("now")),
      leaseId: nullIfRetried(leaseId),
      agentId: nullIfRetried(agentId),
      codeStartedAt: nullIfRetried(codeStartedAt),
      startedAt: nullIfRetried(startedAt),
      leaseExpiresAt: null,
      exitCode: null,
    })
    .where(isOverdue)
    .returning(executionColumns),
);

/** What the code of leased executions is given, by execution id. */
export async function submittedPayloads(
  db: AnyDb,
  ids: string[],
): Promise<Map<string, SubmittedPayload>> {
  if (ids.length === 0) return new Map();
  const rows = await submitted(db, { ids: JSON.stringify(ids) });
  return new Map(rows.map(({ id, ...payload }) => [id, payload]));
}

/** The same of one execution. */
export async function findSubmitted(db: AnyDb, id: string): Promise<SubmittedPayload | undefined> {
  return (await submittedPayloads(db, [id])).get(id);
}

const submitted = tenantRows((own) =>
  query
    .select({
      id: payloads.executionId,
      code: payloads.code,
      input: payloads.input,
      stdin: payloads.stdin,
      args: payloads.args,
      program: payloads.program,
      tools: payloads.tools,
      call: payloads.call,
    })
    .from(payloads)
    .where(and(sql`${payloads.executionId} in ${listed("ids")}`, own(payloads))),
);
