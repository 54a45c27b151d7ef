import { count, sql } from "drizzle-orm";
import { executions, isHeldSession, isRunning, queueLength, sessions } from "../schema.ts";
import { query } from "../statement.ts";
import { type AnyDb, tenantRow, tenantRows } from "../tenant.ts";

export interface QueueStats {
  pending: number;
  running: number;
  /** Jobs leased to each agent, by its id. */
  runningByAgent: Map<string, number>;
  /** Sessions that each agent holds, by its id. */
  sessionsByAgent: Map<string, number>;
}

/** Whether any execution waits, including those that may not start yet. */
export async function isAnyQueued(db: AnyDb): Promise<boolean> {
  return ((await waiting(db))?.n ?? 0) > 0;
}

const waiting = tenantRow(() => query.select({ n: queueLength.queued }).from(queueLength));

/** Number of waiting jobs, and of leases by agent. Calls wait for their session and use no slot. */
export async function readQueueStats(db: AnyDb): Promise<QueueStats> {
  const [pending, leased, held] = await Promise.all([
    waiting(db),
    countLeases(db),
    countSessions(db),
  ]);
  return {
    pending: pending?.n ?? 0,
    running: leased.reduce((sum, { n }) => sum + n, 0),
    runningByAgent: byAgent(leased),
    sessionsByAgent: byAgent(held),
  };
}

const byAgent = (counted: { agentId: string | null; n: number }[]) =>
  new Map(counted.map(({ agentId, n }) => [agentId ?? "", n]));

const countSessions = tenantRows((own) =>
  query
    .select({ agentId: sessions.agentId, n: count() })
    .from(sessions)
    .where(sql`${own.anybody(sessions, "the load of agents is public")} ${isHeldSession}`)
    .groupBy(sessions.agentId),
);

const countLeases = tenantRows((own) =>
  query
    .select({ agentId: executions.agentId, n: count() })
    .from(executions)
    .where(
      sql`${own.anybody(executions, "the load of agents is public")} ${isRunning} and ${executions.sessionId} is null`,
    )
    .groupBy(executions.agentId),
);
