import { and, count, eq, lt, notExists, sql } from "drizzle-orm";
import type { ExecutionStatus } from "../../../shared/wire/execution.ts";
import { cancelledMessage } from "../../domain/transition.ts";
import { type ExecutionRow, executionColumns } from "../jobs/row.ts";
import type { Database } from "../database.ts";
import { batches, executions, isInLine, isQueued, isRunning, tenants } from "../schema.ts";
import { decoder, listed, query } from "../statement.ts";
import { type AnyDb, batch, perTenant, run, tenantRow, tenantRows } from "../tenant.ts";

export interface BatchState {
  id: string;
  tenant: string;
  createdAt: number;
  /** Members by status. */
  counts: Map<ExecutionStatus, number>;
}

export async function findBatch(db: AnyDb, id: string): Promise<BatchState | undefined> {
  const [found, members] = await Promise.all([batchById(db, { id }), countMembers(db, { id })]);
  if (!found) return undefined;
  return { id, ...found, counts: new Map(members.map(({ status, n }) => [status, n])) };
}

const batchById = tenantRow((own) =>
  query
    .select({ createdAt: batches.createdAt, tenant: batches.tenant })
    .from(batches)
    .where(and(eq(batches.id, sql.placeholder("id")), own(batches))),
);
const isMember = eq(executions.batchId, sql.placeholder("id"));
const countMembers = tenantRows((own) =>
  query
    .select({ status: executions.status, n: count() })
    .from(executions)
    .where(and(isMember, own(executions)))
    .groupBy(executions.status),
);

/**
 * Does for every member what `transition` does for one on `cancel`: ends those that are queued, and asks
 * the agents of those that run. Returns the members that have changed.
 */
export async function cancelMembers(db: AnyDb, id: string, now: number): Promise<ExecutionRow[]> {
  const results = await batch(db, [cancelQueued({ id, now }), askRunning({ id })]);
  return results.flatMap(({ rows }) => rows.map(decode));
}

const decode = decoder(executionColumns);
const cancelQueued = perTenant((own) =>
  query
    .update(executions)
    .set({
      status: "cancelled",
      error: sql`json_object('type', 'cancelled', 'message', ${cancelledMessage}, 'phase', 'startup')`,
      endedAt: sql`${sql.placeholder("now")}`,
    })
    .where(and(isMember, isQueued, own(executions)))
    .returning(executionColumns),
);
const askRunning = perTenant((own) =>
  query
    .update(executions)
    .set({ cancelRequested: true })
    .where(and(isMember, isRunning, eq(executions.cancelRequested, sql`0`), own(executions)))
    .returning(executionColumns),
);

export interface Standing {
  id: string;
  status: ExecutionStatus;
  createdAt: number;
  queuePosition: number;
}

/** Positions after this one are given as the number of the tenant's waiting executions, so that a long queue is not counted. */
const countedMost = 2000;

/** Where executions stand, by id. */
export async function readStandings(db: AnyDb, ids: string[]): Promise<Map<string, Standing>> {
  const { rows } = await run(db, standings({ ids: JSON.stringify(ids), most: countedMost }));
  return new Map(
    rows.map((row) => {
      const [id, status] = [row[0] as string, row[1] as ExecutionStatus];
      const [createdAt, queuePosition] = [Number(row[2]), Number(row[3])];
      return [id, { id, status, createdAt, queuePosition }];
    }),
  );
}

const standings = perTenant(
  (own) => sql`
  with line as materialized (
    select seq, row_number() over (order by rank, seq) as position
    from (select rank, seq from ${executions} where ${isInLine} and ${own(executions)}
      order by rank, seq limit ${sql.placeholder("most")}))
  select ${executions.id}, ${executions.status}, ${executions.createdAt},
    iif(${isInLine}, coalesce(line.position,
      (select max(queued, ${sql.placeholder("most")}) from ${tenants} where ${own(tenants)})), 0)
  from ${executions} left join line on line.seq = ${executions.seq}
  where ${executions.id} in ${listed("ids")} and ${own(executions)}`,
);

/** Removes up to `rows` batches made before a time that have no members any more. */
export async function forgetBatches(db: Database, before: number, rows: number): Promise<number> {
  const members = db.orm
    .select({ one: sql`1` })
    .from(executions)
    .where(eq(executions.batchId, batches.id));
  const old = db.orm
    .select({ id: batches.id })
    .from(batches)
    .where(and(lt(batches.createdAt, before), notExists(members)))
    .limit(rows);
  const { rowsAffected } = await db.orm.delete(batches).where(sql`${batches.id} in ${old}`);
  return rowsAffected;
}
