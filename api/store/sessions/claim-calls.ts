import { and, isNotNull, notExists, eq, sql, type SQL } from "drizzle-orm";
import type { Database } from "../database.ts";
import { newLease, type LeaseTerms } from "../jobs/lease.ts";
import { executionColumns, type ExecutionRow } from "../jobs/row.ts";
import { agents, executions, isHeldSession, isWaitingCall, sessions } from "../schema.ts";
import { query, rowsQuery } from "../statement.ts";

/**
 * Leases the next call of each session that an agent holds and in which none runs, or of one session. Not only
 * agents that take new work get calls: one that drains serves the sessions it has.
 */
export async function claimCalls(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  sessionId: string | null = null,
): Promise<ExecutionRow[]> {
  const values = { agentId, expiresAt, now, sessionId };
  // Reads first, because an update would take the write lock each time.
  return (await waiting(db, values)).length > 0 ? claim(db, values) : [];
}

const given = sql.placeholder;
const next = sql`(
  select (select min(c.seq) from ${executions} as c
      where c.session_id = ${sessions.id} and c.status = 'queued' and c.session_id is not null
        and (c.start_by is null or c.start_by > ${given("now")}))
  from ${sessions}
  where ${sessions.agentId} = ${given("agentId")} and ${isHeldSession} and ${sessions.status} = 'ready' and ${sessions.leaseExpiresAt} > ${given("now")}
    and ${sessions.expiresAt} > ${given("now")}
    and (${given("sessionId")} is null or ${sessions.id} = ${given("sessionId")})
    and not exists (select 1 from ${executions} as r
      where r.session_id = ${sessions.id} and r.status = 'running' and r.session_id is not null))`;
const isNext = and(isWaitingCall, sql`${executions.seq} in ${next}`);

const waiting = rowsQuery(query.select({ seq: executions.seq }).from(executions).where(isNext));

const ofSession = (column: SQL): SQL =>
  sql`(select ${column} from ${sessions} where ${sessions.id} = ${executions.sessionId})`;
const hasLeft = query
  .select({ id: agents.id })
  .from(agents)
  .where(and(eq(agents.id, given("agentId")), isNotNull(agents.leftAt)));
const claim = rowsQuery(
  query
    .update(executions)
    .set({
      status: "running",
      attempt: 1,
      ...newLease,
      jobVersion: ofSession(sql`${sessions.jobVersion}`),
      jobRef: ofSession(sql`${sessions.jobRef}`),
    })
    .where(and(isNext, notExists(hasLeft)))
    .returning(executionColumns),
);
