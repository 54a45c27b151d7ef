import { and, asc, type Column, eq, inArray, lt, lte, max, notInArray, sql } from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { type Actor, audited } from "../tenants/sql.ts";
import { type Database, transact } from "./database.ts";
import {
  artifacts,
  buildLogs,
  builds,
  deadLetters,
  executions,
  inputFiles,
  isEnded,
  jobTypes,
  outputChunks,
  payloads,
  removals,
  runItems,
  tombstones,
} from "./schema.ts";
import { given, listed, statement } from "./statement.ts";
import { type AnyDb, batch, type Owner, perTenant, run, type TenantFilled } from "./tenant.ts";

/** Most that one statement removes. The driver of a local file runs it on the thread that serves requests. */
interface Portion {
  rows: number;
  bytes: number;
}

/**
 * Ids of executions that ended before a time (epoch ms), oldest first: as many as fit into a portion, but
 * at least one if there is any. Ids are UUIDs of version 7, so their index is ordered by time and
 * executions submitted later are never read.
 */
export async function endedBefore(db: Database, before: number, most: Portion): Promise<string[]> {
  const found = await db.orm
    .select({ id: executions.id, bytes: storedBytes })
    .from(executions)
    .innerJoin(payloads, eq(payloads.executionId, executions.id))
    .where(and(lt(executions.id, firstIdAt(before)), isEnded, lt(executions.endedAt, before)))
    .orderBy(asc(executions.id))
    .limit(most.rows);
  let bytes = 0;
  const fitting = found.findIndex((row) => (bytes += row.bytes) > most.bytes);
  return found.slice(0, fitting === -1 ? found.length : Math.max(1, fitting)).map(({ id }) => id);
}

const storedBytes = sql<number>`${executions.codeBytes} + ${executions.inputBytes}
  + coalesce(length(${payloads.stdout}), 0) + coalesce(length(${payloads.stderr}), 0)
  + coalesce(length(${payloads.output}), 0)
  + coalesce((select sum(length(${inputFiles.content})) from ${inputFiles}
      where ${inputFiles.executionId} = ${executions.id}), 0)
  + coalesce((select sum(length(${runItems.data}) + coalesce(length(${runItems.answer}), 0)) from ${runItems}
      where ${runItems.executionId} = ${executions.id}), 0)
  + coalesce((select sum(length(${outputChunks.data})) from ${outputChunks}
      where ${outputChunks.executionId} = ${executions.id}), 0)`;

/** Removes ended executions and their rows in other tables. Their artifacts' bytes are removed after `bytesDueAt`. */
export async function removeExecutions(
  db: Database,
  ids: string[],
  bytesDueAt: number,
): Promise<void> {
  await batch(db, removal(ids, bytesDueAt));
}

function removal(ids: string[], bytesDueAt: number): TenantFilled[] {
  const values = { ids: JSON.stringify(ids), bytesDueAt };
  return steps.map((one) => one(values));
}

const isTheirs = (own: Owner, table: SQLiteTable & { executionId: Column }) =>
  sql`${table.executionId} in ${listed("ids")} and ${own(table)}`;
const dropOf = (table: SQLiteTable & { executionId: Column }) =>
  perTenant((own) => sql`delete from ${table} where ${isTheirs(own, table)}`);
const isEndedHere = (own: Owner) =>
  sql`${executions.id} in ${listed("ids")} and ${isEnded} and ${own(executions)}`;

const steps = [
  perTenant(
    (own) => sql`
    insert into ${removals} (prefix, tenant, due_at, artifact_bytes)
    select id, tenant, ${given("bytesDueAt")}, (select coalesce(sum(${artifacts.sizeBytes}), 0)
      from ${artifacts} where ${artifacts.executionId} = ${executions.id} and ${own(artifacts)})
    from ${executions} where ${isEndedHere(own)}
    on conflict do update set artifact_bytes = excluded.artifact_bytes, due_at = max(due_at, excluded.due_at)`,
  ),
  // Bytes of others that these executions refer to: the sweep removes them if nobody else needs them.
  perTenant(
    (own) => sql`
    insert into ${removals} (prefix, tenant, due_at)
    select distinct ${inputFiles.owner}, ${executions.tenant}, ${given("bytesDueAt")}
    from ${inputFiles} join ${executions} on ${executions.id} = ${inputFiles.executionId}
    where ${isTheirs(own, inputFiles)} and ${own(executions)} and ${inputFiles.owner} is not null
    on conflict do update set due_at = max(due_at, excluded.due_at)`,
  ),
  ...[inputFiles, deadLetters, artifacts, outputChunks, runItems, payloads].map(dropOf),
  perTenant((own) => sql`delete from ${executions} where ${isEndedHere(own)}`),
];

/**
 * Removes one ended execution like `removeExecutions`; false if there is none. Its idempotency key stays taken, so
 * that a late repeat of its submission does not run the code again.
 */
export async function removeExecution(
  db: AnyDb,
  id: string,
  bytesDueAt: number,
  by: Actor,
): Promise<boolean> {
  const entry = audited(by, "execution.delete", id);
  const writes = [buryKey({ id, now: by.at }), ...removal([id], bytesDueAt), entry];
  return (await batch(db, writes)).at(-2)?.rowsAffected === 1;
}

const buryKey = perTenant(
  (own) => sql`
  insert into ${tombstones} (tenant, idempotency_key, execution_id, removed_at)
  select tenant, idempotency_key, id, ${given("now")} from ${executions}
  where ${executions.id} = ${given("id")} and idempotency_key is not null and ${isEnded}
    and ${own(executions)}
  on conflict do nothing`,
);

/** Gives the idempotency keys away again of executions that clients removed before a time. */
export async function forgetTombstones(
  db: Database,
  before: number,
  rows: number,
): Promise<number> {
  const { rowsAffected } = await db.client.execute(dropTombstones({ before, rows }));
  return rowsAffected;
}

const dropTombstones = statement(sql`
  delete from ${tombstones} where rowid in (
    select rowid from ${tombstones} where removed_at < ${given("before")} limit ${given("rows")})`);

const isOperators = sql`${builds.spec} ->> 'tenant' is null`;
const isOfKnownType = sql`(${isOperators} or ${builds.jobType} in (select name from ${jobTypes}))`;

/**
 * Removes up to `rows` builds that ended before a time, with their logs. The last build of each job
 * type stays, and so does the last successful build of each specification; of a job type that a tenant has made, as
 * long as it exists, only the last successful one.
 */
export async function removeBuilds(db: Database, before: number, rows: number): Promise<number> {
  const lastOfType = db.orm
    .select({ seq: max(builds.seq) })
    .from(builds)
    .where(isOfKnownType)
    .groupBy(builds.jobType);
  const lastBuilt = db.orm
    .select({ seq: max(builds.seq) })
    .from(builds)
    .where(and(eq(builds.status, "built"), isOfKnownType))
    .groupBy(builds.jobType, sql`iif(${isOperators}, ${builds.spec}, '')`);
  const old = await db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(
      and(
        lt(builds.endedAt, before),
        notInArray(builds.seq, lastOfType),
        notInArray(builds.seq, lastBuilt),
      ),
    )
    .limit(rows);
  if (old.length === 0) return 0;
  const ids = old.map(({ id }) => id);
  await transact(db, [
    db.orm.delete(buildLogs).where(inArray(buildLogs.buildId, ids)),
    db.orm.delete(builds).where(inArray(builds.id, ids)),
  ]);
  return ids.length;
}

/** Prefixes of stored bytes whose removal is due. */
export async function dueRemovals(db: Database, now: number, rows: number): Promise<string[]> {
  const due = await db.orm
    .select({ prefix: removals.prefix })
    .from(removals)
    .where(lte(removals.dueAt, now))
    .orderBy(removals.dueAt)
    .limit(rows);
  return due.map(({ prefix }) => prefix);
}

/** Removes the uploads of a lost lease, and its output if the execution has ended without showing it. */
export async function removeLease(db: Database, executionId: string, leaseId: string) {
  const lastShown = sql`(select ${executions.attempt} from ${executions}
    where ${executions.id} = ${executionId} and ${executions.endedAt} is not null)`;
  await transact(db, [
    db.orm
      .delete(artifacts)
      .where(and(eq(artifacts.executionId, executionId), eq(artifacts.leaseId, leaseId))),
    ...[outputChunks, runItems].map((table) =>
      db.orm
        .delete(table)
        .where(and(eq(table.executionId, executionId), lt(table.attempt, lastShown))),
    ),
  ]);
}

export async function postponeRemoval(db: AnyDb, prefix: string, dueAt: number): Promise<void> {
  await run(db, postpone({ prefix, dueAt }));
}

const postpone = perTenant(
  (own) => sql`
  update ${removals} set due_at = ${given("dueAt")}
  where ${removals.prefix} = ${given("prefix")} and ${own(removals)}`,
);

export async function forgetRemoval(db: Database, prefix: string): Promise<void> {
  await db.orm.delete(removals).where(eq(removals.prefix, prefix));
}

/** Lower bound of the ids (UUIDs of version 7) made at or after a time. */
export function firstIdAt(time: number): string {
  const hex = Math.max(0, Math.floor(time)).toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}`;
}
