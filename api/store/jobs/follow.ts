import { and, eq, sql } from "drizzle-orm";
import type { Database } from "../database.ts";
import { executions } from "../schema.ts";
import { query, rowQuery } from "../statement.ts";

/** Marks an execution as followed until a time (epoch ms), unless it has ended. Returns the agent that runs it. */
export async function followExecution(
  db: Database,
  id: string,
  until: number,
): Promise<string | null> {
  return (await follow(db, { id, until }))?.agentId ?? null;
}

const follow = rowQuery(
  query
    .update(executions)
    .set({ followedUntil: sql`${sql.placeholder("until")}` })
    .where(and(eq(executions.id, sql.placeholder("id")), sql`${executions.endedAt} is null`))
    .returning({ agentId: executions.agentId }),
);
