import type { InStatement, ResultSet } from "@libsql/client/web";
import type { Database } from "./database.ts";

/** Ids that the subscriptions of one process wait for. */
export interface Awaited {
  agents: string[];
  executions: string[];
  /** Executions whose events are followed. */
  outputs: string[];
  builds: string[];
  sessions: string[];
}

export interface Changes {
  /**
   * Changes when a job was submitted or another job can be claimed, also because a tenant whose jobs wait now has room
   * below its limit, or another limit. Null if no job can be claimed.
   */
  job: string | null;
  /** Number of executions ever submitted. */
  submitted: number;
  /** Changes when a build or a session was requested. */
  build: string;
  /** Number of leases that each agent should cancel; agents without any are left out. */
  cancelled: Map<string, number>;
  /** Number of leases of each agent that somebody follows; agents without any are left out. */
  followed: Map<string, number>;
  /** Number of leases of each agent; agents without any are left out. */
  running: Map<string, number>;
  /** A value that changes whenever the state or the output of a followed execution changes. */
  outputs: Map<string, string>;
  /** For each agent, a value that changes when a call waits for it or a session of it has ended. */
  held: Map<string, string>;
  /** A value that changes with the status of an awaited session. */
  sessions: Map<string, string>;
  /** The awaited executions and builds that have ended. */
  endedExecutions: string[];
  endedBuilds: string[];
}

/** Reads in one request what has changed for the subscriptions, no matter which process changed it. */
export async function readChanges(db: Database, awaited: Awaited, now: number): Promise<Changes> {
  const [marks, leases, held, outputs, sessions, executions, builds] = await db.client.batch(
    [
      { sql: marksSql, args: [now] },
      { sql: leasesSql, args: [now, JSON.stringify(awaited.agents)] },
      listed(heldSql, awaited.agents),
      listed(outputsSql, awaited.outputs),
      listed(sessionsSql, awaited.sessions),
      listed(endedSql("executions"), awaited.executions),
      listed(endedSql("builds"), awaited.builds),
    ],
    "read",
  );
  const { head, submitted, retries, room, build } = marks!.rows[0]!;
  const mark = [Number(head), Number(submitted), Number(retries), room as string];
  return {
    job: head === null ? null : mark.join(),
    submitted: Number(submitted),
    build: build as string,
    cancelled: countsOf(leases!, "cancelled"),
    followed: countsOf(leases!, "followed"),
    running: countsOf(leases!, "running"),
    held: marksOf(held!),
    outputs: marksOf(outputs!),
    sessions: marksOf(sessions!),
    endedExecutions: executions!.rows.map(({ id }) => id as string),
    endedBuilds: builds!.rows.map(({ id }) => id as string),
  };
}

/** Each value comes from an index over unfinished rows only, or from a single row. */
const marksSql = `SELECT
  (SELECT seq FROM executions WHERE status = 'queued' AND session_id IS NULL AND available_at <= ?
    ORDER BY job_type, rank, seq LIMIT 1) AS head,
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'executions'), 0) AS submitted,
  (SELECT coalesce(sum(n), 0) FROM counts WHERE name = 'retries') AS retries,
  (SELECT count(*) || ',' || coalesce(sum(max(0, max_running - running)), 0) FROM tenants
    WHERE max_running IS NOT NULL AND queued > 0) AS room,
  (SELECT coalesce(max(seq), 0) || ',' || coalesce(max(attempt), 0) FROM builds
    WHERE status IN ('queued', 'running')) || ',' || (
    SELECT coalesce(max(seq), 0) || ',' || coalesce(max(attempt), 0) FROM sessions WHERE status = 'queued') AS build`;

const leasesSql = `SELECT agent_id AS id, sum(cancel_requested) AS cancelled,
    sum(coalesce(followed_until, 0) > ?) AS followed, count(*) AS running
  FROM executions WHERE status = 'running' AND agent_id IN (SELECT value FROM json_each(?))
  GROUP BY agent_id`;

const heldSql = `SELECT s.agent_id AS id, count(DISTINCT s.id) || ',' || coalesce(max(c.seq), 0) AS mark
  FROM sessions s LEFT JOIN executions c ON c.session_id = s.id AND c.status = 'queued' AND c.session_id IS NOT NULL
  WHERE s.status IN ('starting', 'ready') AND s.agent_id IN (SELECT value FROM json_each(?))
  GROUP BY s.agent_id`;

const sessionsSql = `SELECT id, status || ',' || attempt AS mark FROM sessions
  WHERE id IN (SELECT value FROM json_each(?))`;

const outputsSql = `SELECT e.id, e.status || ',' || e.attempt || ',' || coalesce(
    (SELECT c.position FROM output_chunks c WHERE c.execution_id = e.id AND c.attempt = e.attempt
      ORDER BY c.position DESC LIMIT 1), -1) || ',' || coalesce(
    (SELECT max(i.number) || ',' || max(coalesce(i.answered, 0)) FROM run_items i
      WHERE i.execution_id = e.id AND i.attempt = e.attempt), 0) AS mark
  FROM executions e WHERE e.id IN (SELECT value FROM json_each(?))`;

function marksOf({ rows }: ResultSet): Map<string, string> {
  return new Map(rows.map(({ id, mark }) => [id as string, mark as string]));
}

function countsOf(
  { rows }: ResultSet,
  column: "cancelled" | "followed" | "running",
): Map<string, number> {
  const counts = rows.map((row): [string, number] => [row["id"] as string, Number(row[column])]);
  return new Map(counts.filter(([, n]) => n > 0));
}

const endedSql = (table: "executions" | "builds"): string =>
  `SELECT id FROM ${table} WHERE ended_at IS NOT NULL AND id IN (SELECT value FROM json_each(?))`;

function listed(sql: string, ids: string[]): InStatement {
  return { sql, args: [JSON.stringify(ids)] };
}
