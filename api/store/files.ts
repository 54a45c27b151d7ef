import {
  and,
  desc,
  eq,
  exists,
  gt,
  inArray,
  lt,
  lte,
  not,
  notExists,
  or,
  sql,
  type SQL,
  type SQLWrapper,
} from "drizzle-orm";
import { transact, insertWhere, type Database } from "./database.ts";
import { executions, fileBytes, files, inputFiles, removals } from "./schema.ts";
import { query } from "./statement.ts";

export type FileRow = typeof files.$inferSelect;

/**
 * Makes room for a file that is about to be stored, and schedules the removal of its bytes, in case it
 * never gets a row. Returns false if all files would have more than `mostBytes`.
 */
export async function expectFile(
  db: Database,
  file: Pick<FileRow, "id" | "sizeBytes">,
  dueAt: number,
  mostBytes: number,
): Promise<boolean> {
  const removal = { prefix: file.id, dueAt, fileBytes: file.sizeBytes };
  const hasRoom = exists(
    query
      .select({ one: sql`1` })
      .from(fileBytes)
      .where(lte(fileBytes.total, mostBytes - file.sizeBytes)),
  );
  const [inserted] = await transact(db, [insertWhere(removals, removal, hasRoom)]);
  return inserted?.rowsAffected === 1;
}

/** Bytes of all uploaded files, until they are removed from the artifact store. */
export async function storedFileBytes(db: Database): Promise<number> {
  const [row] = await db.orm.select().from(fileBytes);
  return row!.total;
}

/**
 * Records an uploaded file. Returns false if the removal of its bytes has begun, or if another file that
 * is there has its idempotency key.
 */
export async function recordFile(db: Database, file: FileRow): Promise<boolean> {
  const isExpected = exists(
    query
      .select({ one: sql`1` })
      .from(removals)
      .where(eq(removals.prefix, file.id)),
  );
  const itself = query
    .select({ one: sql`1` })
    .from(files)
    .where(eq(files.id, file.id));
  const [, inserted] = await transact(db, [
    // A file that has expired gives its key away, also before the sweep.
    db.orm
      .update(files)
      .set({ uploadKey: null })
      .where(and(hasUploadKey(file.uploadKey), not(isThere(file.createdAt)!))),
    insertWhere(files, file, isExpected).append(sql` on conflict do nothing`),
    db.orm.delete(removals).where(and(eq(removals.prefix, file.id), exists(itself))),
  ]);
  return inserted?.rowsAffected === 1;
}

const references = query
  .select({ one: sql`1` })
  .from(inputFiles)
  .where(eq(inputFiles.owner, files.id));

/** A file is there until it expires, and longer while an execution refers to it. */
const isThere = (now: number): SQL | undefined => or(gt(files.expiresAt, now), exists(references));

/** In the words of the index. */
const hasUploadKey = (key: string | null): SQL =>
  sql`${files.uploadKey} = ${key} and ${files.uploadKey} is not null`;

/** The files with these ids that are there. */
export async function findFiles(db: Database, ids: string[], now: number): Promise<FileRow[]> {
  return db.orm
    .select()
    .from(files)
    .where(and(inArray(files.id, ids), isThere(now)));
}

/** The file that an upload with this key has stored. */
export async function findByUploadKey(
  db: Database,
  uploadKey: string,
  now: number,
): Promise<FileRow | undefined> {
  const [file] = await db.orm
    .select()
    .from(files)
    .where(and(hasUploadKey(uploadKey), isThere(now)));
  return file;
}

/** A page of files, newest first. Ids are UUIDs of version 7, so they are ordered by time. */
export async function listFiles(
  db: Database,
  before: string | undefined,
  now: number,
  limit: number,
  offset: number,
): Promise<FileRow[]> {
  return db.orm
    .select()
    .from(files)
    .where(and(before === undefined ? undefined : lt(files.id, before), isThere(now)))
    .orderBy(desc(files.id))
    .limit(limit)
    .offset(offset);
}

/** Removes a file; false if there is none. Its bytes are removed later, unless an execution refers to them. */
export async function removeFile(db: Database, id: string, bytesDueAt: number): Promise<boolean> {
  const [, removed] = await transact(db, removal(db, eq(files.id, id), bytesDueAt));
  return removed?.rowsAffected === 1;
}

/** Only ids of files become removals: a client names them, and the sweep removes what it finds under any prefix. */
function removal({ orm }: Database, which: SQL | undefined, bytesDueAt: number): SQLWrapper[] {
  return [
    sql`insert into ${removals} (prefix, due_at, file_bytes)
      select ${files.id}, ${bytesDueAt}, ${files.sizeBytes} from ${files} where ${which}
      on conflict do nothing`,
    orm.delete(files).where(which),
  ];
}

/** Removes up to `rows` expired files that no execution refers to. */
export async function removeExpiredFiles(
  db: Database,
  now: number,
  rows: number,
  bytesDueAt: number,
): Promise<number> {
  const isExpired = and(lte(files.expiresAt, now), notExists(references));
  const expired = await db.orm.select({ id: files.id }).from(files).where(isExpired).limit(rows);
  const ids = expired.map(({ id }) => id);
  // A job may have come to refer to one of them meanwhile.
  const which = and(inArray(files.id, ids), isExpired);
  if (ids.length > 0) await transact(db, removal(db, which, bytesDueAt));
  return ids.length;
}

/**
 * Drops a due removal whose bytes are still needed: by their owner, or by an execution that refers to
 * them. Whoever needs them last orders their removal again. Returns whether it was dropped.
 */
export async function keepNeeded(db: Database, prefix: string, now: number): Promise<boolean> {
  const one = { one: sql`1` };
  const { rowsAffected } = await db.orm
    .delete(removals)
    .where(
      and(
        eq(removals.prefix, prefix),
        lte(removals.dueAt, now),
        or(
          exists(query.select(one).from(inputFiles).where(eq(inputFiles.owner, prefix))),
          exists(query.select(one).from(files).where(eq(files.id, prefix))),
          exists(query.select(one).from(executions).where(eq(executions.id, prefix))),
        ),
      ),
    );
  return rowsAffected === 1;
}
