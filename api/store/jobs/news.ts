import type { InStatement } from "@libsql/client/web";
import type { Database } from "../database.ts";

/** Ids that the subscriptions of one process wait for. */
export interface Awaited {
  agents: string[];
  executions: string[];
  builds: string[];
}

export interface News {
  /** Changes when a job was submitted or another job can be claimed; null if none can. */
  job: string | null;
  /** Number of executions ever submitted. */
  submitted: number;
  /** Changes when a build was requested. */
  build: string;
  /** Number of leases that each agent should cancel; agents without any are left out. */
  cancelled: Map<string, number>;
  /** The awaited executions and builds that have ended. */
  endedExecutions: string[];
  endedBuilds: string[];
}

/** Reads in one request what has changed for the subscriptions, no matter which process changed it. */
export async function readNews(db: Database, awaited: Awaited, now: number): Promise<News> {
  const [marks, cancelled, executions, builds] = await db.client.batch(
    [
      { sql: marksSql, args: [now] },
      listed(cancelledSql, awaited.agents),
      listed(endedSql("executions"), awaited.executions),
      listed(endedSql("builds"), awaited.builds),
    ],
    "read",
  );
  const { head, submitted, retries, build } = marks!.rows[0]!;
  return {
    job: head === null ? null : `${Number(head)},${Number(submitted)},${Number(retries)}`,
    submitted: Number(submitted),
    build: build as string,
    cancelled: new Map(cancelled!.rows.map(({ id, n }) => [id as string, Number(n)])),
    endedExecutions: executions!.rows.map(({ id }) => id as string),
    endedBuilds: builds!.rows.map(({ id }) => id as string),
  };
}

/** Each value comes from an index over unfinished rows only, or from a single row. */
const marksSql = `SELECT
  (SELECT seq FROM executions WHERE status = 'queued' AND available_at <= ? ORDER BY seq LIMIT 1) AS head,
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'executions'), 0) AS submitted,
  (SELECT coalesce(sum(n), 0) FROM counts WHERE name = 'retries') AS retries,
  (SELECT coalesce(max(seq), 0) || ',' || coalesce(max(attempt), 0) FROM builds
    WHERE status IN ('queued', 'running')) AS build`;

const cancelledSql = `SELECT agent_id AS id, count(*) AS n FROM executions
  WHERE status = 'running' AND cancel_requested AND agent_id IN (SELECT value FROM json_each(?))
  GROUP BY agent_id`;

const endedSql = (table: "executions" | "builds"): string =>
  `SELECT id FROM ${table} WHERE ended_at IS NOT NULL AND id IN (SELECT value FROM json_each(?))`;

function listed(sql: string, ids: string[]): InStatement {
  return { sql, args: [JSON.stringify(ids)] };
}
