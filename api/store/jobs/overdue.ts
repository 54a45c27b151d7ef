import { and, eq, isNotNull, lte, sql } from "drizzle-orm";
import { type ExecutionRow, executionColumns } from "./row.ts";
import type { Database } from "../database.ts";
import { executions, isQueued } from "../schema.ts";
import { query, rowQuery, rowsQuery } from "../statement.ts";

/**
 * Ends every execution that no agent has leased within its `queue_timeout`, and returns their new state.
 * A claim never leases such an execution, so it does not matter how late this is called.
 */
export async function endOverdue(db: Database, now: number): Promise<ExecutionRow[]> {
  // Reads first, because an update would take the write lock each time.
  return (await findOverdue(db, { now })) ? end(db, { now }) : [];
}

const { startBy, attempt, createdAt, runAt, sessionId } = executions;
const isOverdue = and(
  isQueued,
  isNotNull(startBy),
  lte(startBy, sql.placeholder("now")),
  eq(attempt, sql`0`),
);
const findOverdue = rowQuery(
  query.select({ id: executions.id }).from(executions).where(isOverdue).limit(1),
);

// In brackets: SQL joins text before it divides.
const seconds = sql`((${startBy} - max(${createdAt}, coalesce(${runAt}, 0))) / 1000)`;
const nobody = sql`iif(${sessionId} is null, 'No agent took the job', 'The session did not begin the call')`;
const message = sql`${nobody} || ' within its queue_timeout of ' || ${seconds} || ' s.'`;
const end = rowsQuery(
  query
    .update(executions)
    .set({
      status: "timeout",
      error: sql`json_object('type', 'timeout', 'message', ${message}, 'phase', 'startup')`,
      endedAt: sql`${sql.placeholder("now")}`,
    })
    .where(isOverdue)
    .returning(executionColumns),
);
