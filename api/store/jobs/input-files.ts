import { and, asc, eq, exists, getTableColumns, sql } from "drizzle-orm";
import type { InStatement } from "@libsql/client/web";
import { insertWhere, type Database } from "../database.ts";
import type { ExecutionRow } from "./row.ts";
import { executions, inputFiles } from "../schema.ts";
import { listed, query, rowsQuery, statement } from "../statement.ts";

export type InputFileRow = typeof inputFiles.$inferSelect;
/** A file of a submission, whose execution is not stored yet. */
export type NewInputFile = Omit<InputFileRow, "executionId">;
/** What records and agents see of a file. */
export type InputFileInfo = Omit<InputFileRow, "content" | "storeKey" | "owner">;

const given = sql.placeholder;
const columns = getTableColumns(inputFiles);
const { content: _content, storeKey: _storeKey, owner: _owner, ...infoColumns } = columns;

const insert = statement(
  insertWhere(
    inputFiles,
    Object.fromEntries(Object.keys(columns).map((name) => [name, given(name)])) as never,
    exists(
      query
        .select({ one: sql`1` })
        .from(executions)
        .where(eq(executions.id, given("executionId"))),
    ),
  ),
);

/** Inserts the files of an execution, if it was stored. */
export function insertFiles(executionId: string, files: NewInputFile[]): InStatement[] {
  return files.map((file) => insert({ ...file, executionId }));
}

/** The values of `insertFilesOf` for the files of a batch. */
export function filesJson(submitted: { id: string; files?: NewInputFile[] | undefined }[]): string {
  return JSON.stringify(
    submitted.flatMap(({ id, files = [] }) =>
      files.map(({ content, ...file }) => ({ ...file, id, content: content && hex(content) })),
    ),
  );
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const field = (name: string) => sql`value ->> ${sql.raw(`'${name}'`)}`;

/** Inserts the files of all executions of a batch that were stored by it. */
export const insertFilesOf = (isNew: ReturnType<typeof sql>) => sql`
  insert into ${inputFiles}
    (execution_id, name, size_bytes, sha256, content_type, content, store_key, owner)
  select ${field("id")}, ${field("name")}, ${field("sizeBytes")}, ${field("sha256")},
    ${field("contentType")}, unhex(${field("content")}), ${field("storeKey")}, ${field("owner")}
  from json_each(${given("files")})
  where exists (select 1 from ${executions} where ${executions.id} = ${field("id")}) and ${isNew}`;

/** The files of executions, by name. */
export async function filesOf(
  db: Database,
  rows: Pick<ExecutionRow, "id" | "inputs">[],
): Promise<InputFileInfo[]> {
  const ids = rows.flatMap(({ id, inputs }) => (inputs === null ? [] : [id]));
  return ids.length === 0 ? [] : infos(db, { ids: JSON.stringify(ids) });
}

const infos = rowsQuery(
  query
    .select(infoColumns)
    .from(inputFiles)
    .where(sql`${inputFiles.executionId} in ${listed("ids")}`)
    .orderBy(asc(inputFiles.name)),
);

/** The files of an execution with their bytes, for a job that derives from it. */
export async function wholeFilesOf(db: Database, id: string): Promise<NewInputFile[]> {
  const { executionId: _, ...taken } = columns;
  return db.orm.select(taken).from(inputFiles).where(eq(inputFiles.executionId, id));
}

/** A file of an execution, by its name or its hash. */
export async function findInputFile(
  db: Database,
  executionId: string,
  file: { name: string } | { sha256: string },
): Promise<InputFileRow | undefined> {
  const isWanted =
    "name" in file ? eq(inputFiles.name, file.name) : eq(inputFiles.sha256, file.sha256);
  const [row] = await db.orm
    .select()
    .from(inputFiles)
    .where(and(eq(inputFiles.executionId, executionId), isWanted))
    .limit(1);
  return row;
}
