import { and, eq, sql } from "drizzle-orm";
import { executions } from "../schema.ts";
import { query } from "../statement.ts";
import { type AnyDb, tenantRow } from "../tenant.ts";

/** Marks an execution as followed until a time (epoch ms), unless it has ended. Returns the agent that runs it. */
export async function followExecution(
  db: AnyDb,
  id: string,
  until: number,
): Promise<string | null> {
  return (await follow(db, { id, until }))?.agentId ?? null;
}

const follow = tenantRow((own) =>
  query
    .update(executions)
    .set({ followedUntil: sql`${sql.placeholder("until")}` })
    .where(
      and(
        eq(executions.id, sql.placeholder("id")),
        sql`${executions.endedAt} is null`,
        own(executions),
      ),
    )
    .returning({ agentId: executions.agentId }),
);
