import {
  and,
  desc,
  eq,
  exists,
  getTableColumns,
  gt,
  inArray,
  lt,
  lte,
  not,
  notExists,
  or,
  type Placeholder,
  sql,
  type SQL,
} from "drizzle-orm";
import { type Database, insertWhere, transact } from "../store/database.ts";
import { executions, fileBytes, files, inputFiles, removals, tenants } from "../store/schema.ts";
import { given, listed, query } from "../store/statement.ts";
import {
  type AnyDb,
  batch,
  listRows,
  type Owner,
  perTenant,
  tenantRow,
  tenantRows,
} from "../store/tenant.ts";

export type FileRow = typeof files.$inferSelect;
/** Its tenant is that of the handle, or else `default`. */
type NewFile = Omit<FileRow, "tenant"> & { tenant?: string };

/**
 * Makes room for a file that is about to be stored, and schedules the removal of its bytes, in case it
 * never gets a row. Returns false if all files would have more than `mostBytes`, or its tenant too much.
 */
export async function expectFile(
  db: AnyDb,
  file: Pick<NewFile, "id" | "sizeBytes" | "tenant">,
  dueAt: number,
  mostBytes: number,
): Promise<boolean> {
  const values = { tenant: "default", ...file, dueAt, mostBytes };
  const [inserted] = await batch(db, [expect(values)]);
  return inserted?.rowsAffected === 1;
}

const expect = perTenant(
  (own) => sql`
  insert into ${removals} (prefix, tenant, due_at, file_bytes)
  select ${given("id")}, ${own.tenant}, ${given("dueAt")}, ${given("sizeBytes")}
  where exists (select 1 from ${fileBytes} where total <= ${given("mostBytes")} - ${given("sizeBytes")})
    and not exists (select 1 from ${tenants} where ${own(tenants)}
      and stored_bytes + ${given("sizeBytes")} > max_stored_bytes)`,
);

/** Bytes of all uploaded files, until they are removed from the artifact store. */
export async function storedFileBytes(db: Database): Promise<number> {
  const [row] = await db.orm.select().from(fileBytes);
  return row!.total;
}

/**
 * Records an uploaded file. Returns false if the removal of its bytes has begun, or if another file that
 * is there has its idempotency key.
 */
export async function recordFile(db: AnyDb, file: NewFile): Promise<boolean> {
  const values = { tenant: "default", ...file };
  const [, inserted] = await batch(db, [freeKey(values), insert(values), dropNote(values)]);
  return inserted?.rowsAffected === 1;
}

const one = { one: sql`1` };
const isIt = eq(files.id, given("id"));

/** In the words of the index. */
const hasUploadKey = sql`${files.uploadKey} = ${given("uploadKey")} and ${files.uploadKey} is not null`;

// A file that has expired gives its key away, also before the sweep.
const freeKey = perTenant((own) =>
  query
    .update(files)
    .set({ uploadKey: null })
    .where(and(hasUploadKey, not(isThere(own, given("createdAt"))!), own(files))),
);
const insert = perTenant((own) => {
  const columns = Object.keys(getTableColumns(files)).map((name) => [name, given(name)] as const);
  const row = { ...Object.fromEntries(columns), tenant: own.tenant };
  const expected = query.select(one).from(removals);
  const isExpected = exists(expected.where(and(eq(removals.prefix, given("id")), own(removals))));
  return insertWhere(files, row as never, isExpected).append(sql` on conflict do nothing`);
});
const dropNote = perTenant((own) =>
  query.delete(removals).where(
    and(
      eq(removals.prefix, given("id")),
      exists(
        query
          .select(one)
          .from(files)
          .where(and(isIt, own(files))),
      ),
      own(removals),
    ),
  ),
);

function referencesTo(own?: Owner) {
  return query
    .select(one)
    .from(inputFiles)
    .where(and(eq(inputFiles.owner, files.id), own?.(inputFiles)));
}

/** A file is there until it expires, and longer while an execution refers to it. */
function isThere(own: Owner, now: Placeholder | number): SQL | undefined {
  return or(gt(files.expiresAt, now), exists(referencesTo(own)));
}

/** The files with these ids that are there. */
export async function findFiles(db: AnyDb, ids: string[], now: number): Promise<FileRow[]> {
  return filesById(db, { ids: JSON.stringify(ids), now });
}

const filesById = tenantRows((own) =>
  query
    .select()
    .from(files)
    .where(and(sql`${files.id} in ${listed("ids")}`, isThere(own, given("now")), own(files))),
);

/** The file that an upload with this key has stored. */
export const findByUploadKey = tenantRow((own) =>
  query
    .select()
    .from(files)
    .where(and(hasUploadKey, isThere(own, given("now")), own(files))),
);

/** A page of files, newest first. Ids are UUIDs of version 7, so they are ordered by time. */
export async function listFiles(
  db: AnyDb,
  before: string | undefined,
  now: number,
  limit: number,
  offset: number,
): Promise<FileRow[]> {
  return listRows(db, (own) =>
    query
      .select()
      .from(files)
      .where(
        and(before === undefined ? undefined : lt(files.id, before), isThere(own, now), own(files)),
      )
      .orderBy(desc(files.id))
      .limit(limit)
      .offset(offset),
  );
}

/** Removes a file; false if there is none. Its bytes are removed later, unless an execution refers to them. */
export async function removeFile(db: AnyDb, id: string, bytesDueAt: number): Promise<boolean> {
  const [, removed] = await batch(db, [noteBytes({ id, bytesDueAt }), drop({ id })]);
  return removed?.rowsAffected === 1;
}

const noteBytes = perTenant((own) => noteOf(and(isIt, own(files)), given("bytesDueAt")));
const drop = perTenant((own) => query.delete(files).where(and(isIt, own(files))));

/** Only ids of files become removals: a client names them, and the sweep removes what it finds under any prefix. */
function noteOf(which: SQL | undefined, bytesDueAt: Placeholder | number): SQL {
  return sql`insert into ${removals} (prefix, tenant, due_at, file_bytes)
    select ${files.id}, ${files.tenant}, ${bytesDueAt}, ${files.sizeBytes} from ${files} where ${which}
    on conflict do update set file_bytes = excluded.file_bytes, due_at = max(due_at, excluded.due_at)`;
}

/** Removes up to `rows` expired files that no execution refers to. */
export async function removeExpiredFiles(
  db: Database,
  now: number,
  rows: number,
  bytesDueAt: number,
): Promise<number> {
  const isExpired = and(lte(files.expiresAt, now), notExists(referencesTo()));
  const expired = await db.orm.select({ id: files.id }).from(files).where(isExpired).limit(rows);
  const ids = expired.map(({ id }) => id);
  // A job may have come to refer to one of them meanwhile.
  const which = and(inArray(files.id, ids), isExpired);
  if (ids.length > 0)
    await transact(db, [noteOf(which, bytesDueAt), db.orm.delete(files).where(which)]);
  return ids.length;
}

/**
 * Drops a due removal whose bytes are still needed: by their owner, or by an execution that refers to
 * them. Whoever needs them last orders their removal again. Bytes without an owner count until they are gone, so
 * their removal stays, and is due in an hour. Returns whether the bytes are needed.
 */
export async function keepNeeded(db: Database, prefix: string, now: number): Promise<boolean> {
  const isDue = and(eq(removals.prefix, prefix), lte(removals.dueAt, now));
  const isReferred = exists(query.select(one).from(inputFiles).where(eq(inputFiles.owner, prefix)));
  const isCounted = sql`${removals.fileBytes} + ${removals.artifactBytes} > 0`;
  const isOwned = or(
    exists(query.select(one).from(files).where(eq(files.id, prefix))),
    exists(query.select(one).from(executions).where(eq(executions.id, prefix))),
  );
  const results = await transact(db, [
    db.orm
      .update(removals)
      .set({ dueAt: now + hourMs })
      .where(and(isDue, isReferred, isCounted)),
    db.orm.delete(removals).where(and(isDue, or(isReferred, isOwned))),
  ]);
  return results.some(({ rowsAffected }) => rowsAffected === 1);
}

const hourMs = 3_600_000;
