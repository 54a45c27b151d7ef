import { count } from "drizzle-orm";
import type { Database } from "../database.ts";
import { executions, isRunning, queueLength } from "../schema.ts";
import { query, rowQuery } from "../statement.ts";

export interface QueueStats {
  pending: number;
  running: number;
  /** Executions leased to each agent, by its id. */
  runningByAgent: Map<string, number>;
}

/** Whether any execution waits, including those that may not start yet. */
export async function isAnyQueued(db: Database): Promise<boolean> {
  return ((await waiting(db))?.n ?? 0) > 0;
}

const waiting = rowQuery(query.select({ n: queueLength.queued }).from(queueLength));

/** Number of waiting executions, and of leases by agent. */
export async function readQueueStats(db: Database): Promise<QueueStats> {
  const [[pending], leased] = await Promise.all([
    db.orm.select({ n: queueLength.queued }).from(queueLength),
    db.orm
      .select({ agentId: executions.agentId, n: count() })
      .from(executions)
      .where(isRunning)
      .groupBy(executions.agentId),
  ]);
  return {
    pending: pending?.n ?? 0,
    running: leased.reduce((sum, { n }) => sum + n, 0),
    runningByAgent: new Map(leased.map(({ agentId, n }) => [agentId ?? "", n])),
  };
}
