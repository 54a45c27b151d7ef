import { and, asc, eq, inArray, lt, lte, max, notInArray, sql, type SQLWrapper } from "drizzle-orm";
import { firstIdAt } from "../domain/first-id.ts";
import { transact, type Database } from "./database.ts";
import {
  artifacts,
  buildLogs,
  builds,
  deadLetters,
  executions,
  inputFiles,
  isEnded,
  outputChunks,
  payloads,
  removals,
  tombstones,
} from "./schema.ts";
import { statement } from "./statement.ts";

/** Most that one statement removes. The driver of a local file runs it on the thread that serves requests. */
export interface Portion {
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
  + coalesce((select sum(length(${outputChunks.data})) from ${outputChunks}
      where ${outputChunks.executionId} = ${executions.id}), 0)`;

/** Removes ended executions and their rows in other tables. Their artifacts' bytes are removed after `bytesDueAt`. */
export async function removeExecutions(
  db: Database,
  ids: string[],
  bytesDueAt: number,
): Promise<void> {
  await transact(db, removal(db, ids, bytesDueAt));
}

function removal({ orm }: Database, ids: string[], bytesDueAt: number): SQLWrapper[] {
  return [
    orm
      .insert(removals)
      .values(ids.map((prefix) => ({ prefix, dueAt: bytesDueAt })))
      .onConflictDoNothing(),
    dueAgain(ids, bytesDueAt),
    orm.delete(inputFiles).where(inArray(inputFiles.executionId, ids)),
    orm.delete(deadLetters).where(inArray(deadLetters.executionId, ids)),
    orm.delete(artifacts).where(inArray(artifacts.executionId, ids)),
    orm.delete(outputChunks).where(inArray(outputChunks.executionId, ids)),
    orm.delete(payloads).where(inArray(payloads.executionId, ids)),
    orm.delete(executions).where(and(inArray(executions.id, ids), isEnded)),
  ];
}

/** Bytes of others that these executions refer to: the sweep removes them if nobody else needs them. */
function dueAgain(ids: string[], dueAt: number): SQLWrapper {
  return sql`insert into ${removals} (prefix, due_at)
    select distinct ${inputFiles.owner}, ${dueAt} from ${inputFiles}
    where ${inArray(inputFiles.executionId, ids)} and ${inputFiles.owner} is not null
    on conflict do update set due_at = max(due_at, excluded.due_at)`;
}

/**
 * Removes one ended execution like `removeExecutions`. Its idempotency key stays taken, so that a late
 * repeat of its submission does not run the code again.
 */
export async function removeExecution(
  db: Database,
  id: string,
  now: number,
  bytesDueAt: number,
): Promise<void> {
  await transact(db, [buryKey({ id, now }), ...removal(db, [id], bytesDueAt)]);
}

const buryKey = statement(sql`
  insert into ${tombstones} (key_id, idempotency_key, execution_id, removed_at)
  select coalesce(key_id, ''), idempotency_key, id, ${sql.placeholder("now")} from ${executions}
  where ${executions.id} = ${sql.placeholder("id")} and idempotency_key is not null and ${isEnded}
  on conflict do nothing`);

/** Gives the idempotency keys away again of executions that clients removed before a time. */
export async function forgetTombstones(
  db: Database,
  before: number,
  rows: number,
): Promise<number> {
  const { rowsAffected } = await db.client.execute(dropTombstones({ before, rows }));
  return rowsAffected;
}

const given = sql.placeholder;
const dropTombstones = statement(sql`
  delete from ${tombstones} where rowid in (
    select rowid from ${tombstones} where removed_at < ${given("before")} limit ${given("rows")})`);

/**
 * Removes up to `rows` builds that ended before a time, with their logs. The last build of each job
 * type stays, and so does the last successful build of each specification.
 */
export async function removeBuilds(db: Database, before: number, rows: number): Promise<number> {
  const lastOfType = db.orm
    .select({ seq: max(builds.seq) })
    .from(builds)
    .groupBy(builds.jobType);
  const lastBuilt = db.orm
    .select({ seq: max(builds.seq) })
    .from(builds)
    .where(eq(builds.status, "built"))
    .groupBy(builds.jobType, builds.spec);
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
    db.orm
      .delete(outputChunks)
      .where(and(eq(outputChunks.executionId, executionId), lt(outputChunks.attempt, lastShown))),
  ]);
}

export async function postponeRemoval(db: Database, prefix: string, dueAt: number): Promise<void> {
  await db.orm.update(removals).set({ dueAt }).where(eq(removals.prefix, prefix));
}

export async function forgetRemoval(db: Database, prefix: string): Promise<void> {
  await db.orm.delete(removals).where(eq(removals.prefix, prefix));
}
