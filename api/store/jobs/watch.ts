import { and, eq, sql } from "drizzle-orm";
import type { Database } from "../database.ts";
import { executions } from "../schema.ts";
import { query, rowsQuery } from "../statement.ts";

/** Marks an execution as watched until a time (epoch ms), unless it has ended. Returns the agent that has it. */
export async function watchExecution(
  db: Database,
  id: string,
  until: number,
): Promise<string | null> {
  const [row] = await watch(db, { id, until });
  return row?.agentId ?? null;
}

const watchedColumns = { agentId: executions.agentId };

const watch = rowsQuery(
  watchedColumns,
  query
    .update(executions)
    .set({ watchedUntil: sql`${sql.placeholder("until")}` })
    .where(and(eq(executions.id, sql.placeholder("id")), sql`${executions.endedAt} is null`))
    .returning(watchedColumns),
);
