import { and, asc, eq, exists, getTableColumns, type SQL, sql } from "drizzle-orm";
import { insertWhere } from "../database.ts";
import type { ExecutionRow } from "./row.ts";
import { executions, inputFiles } from "../schema.ts";
import { listed, query } from "../statement.ts";
import {
  type AnyDb,
  type Owner,
  perTenant,
  type TenantFilled,
  tenantRow,
  tenantRows,
} from "../tenant.ts";

export type InputFileRow = typeof inputFiles.$inferSelect;
/** A file of a submission, whose execution is not stored yet. */
export type NewInputFile = Omit<InputFileRow, "executionId" | "toWork"> & { toWork?: boolean };
/** What records and agents see of a file. */
export type InputFileInfo = Omit<InputFileRow, "content" | "storeKey" | "owner">;

const given = sql.placeholder;
const columns = getTableColumns(inputFiles);
const { content: _content, storeKey: _storeKey, owner: _owner, ...infoColumns } = columns;

const insert = perTenant((own) =>
  insertWhere(
    inputFiles,
    Object.fromEntries(Object.keys(columns).map((name) => [name, given(name)])) as never,
    exists(
      query
        .select({ one: sql`1` })
        .from(executions)
        .where(and(eq(executions.id, given("executionId")), own(executions))),
    ),
  ),
);

/** Inserts the files of an execution, if it was stored. */
export function insertFiles(
  executionId: string,
  files: NewInputFile[],
  tenant: string,
): TenantFilled[] {
  return files.map((file) => insert({ toWork: false, ...file, executionId, tenant }));
}

/** The values of `insertFilesOf` for the files of a batch. */
export function filesJson(submitted: { id: string; files?: NewInputFile[] | undefined }[]): string {
  return JSON.stringify(
    submitted.flatMap(({ id, files = [] }) =>
      files.map(({ content, ...file }) => ({ ...file, id, content: content && hex(content) })),
    ),
  );
}

/** A string for each byte would block the thread for seconds. */
function hex(bytes: Uint8Array): string {
  const digits = new Uint8Array(2 * bytes.length);
  bytes.forEach((byte, n) => {
    digits[2 * n] = hexDigits[byte >> 4]!;
    digits[2 * n + 1] = hexDigits[byte & 15]!;
  });
  return new TextDecoder().decode(digits);
}
const hexDigits = new TextEncoder().encode("0123456789abcdef");

const field = (name: string) => sql`value ->> ${sql.raw(`'${name}'`)}`;

/** Inserts the files of all executions of a batch that were stored by it. */
export const insertFilesOf = (own: Owner, isNew: SQL) => sql`
  insert into ${inputFiles}
    (execution_id, name, size_bytes, sha256, content_type, content, store_key, owner)
  select ${field("id")}, ${field("name")}, ${field("sizeBytes")}, ${field("sha256")},
    ${field("contentType")}, unhex(${field("content")}), ${field("storeKey")}, ${field("owner")}
  from json_each(${given("files")})
  where exists (select 1 from ${executions}
    where ${executions.id} = ${field("id")} and ${own(executions)}) and ${isNew}`;

/** The files of executions, by name. */
export async function filesOf(
  db: AnyDb,
  rows: Pick<ExecutionRow, "id" | "inputs">[],
): Promise<InputFileInfo[]> {
  const ids = rows.flatMap(({ id, inputs }) => (inputs === null ? [] : [id]));
  return ids.length === 0 ? [] : infos(db, { ids: JSON.stringify(ids) });
}

const infos = tenantRows((own) =>
  query
    .select(infoColumns)
    .from(inputFiles)
    .where(and(sql`${inputFiles.executionId} in ${listed("ids")}`, own(inputFiles)))
    .orderBy(asc(inputFiles.name)),
);

/** The files of an execution with their bytes, for a job that derives from it. */
export async function wholeFilesOf(db: AnyDb, id: string): Promise<NewInputFile[]> {
  return wholeFiles(db, { id });
}

const { executionId: _, ...taken } = columns;
const wholeFiles = tenantRows((own) =>
  query
    .select(taken)
    .from(inputFiles)
    .where(and(eq(inputFiles.executionId, given("id")), own(inputFiles))),
);

/** A file of an execution, by its name or its hash. */
export async function findInputFile(
  db: AnyDb,
  executionId: string,
  file: { name: string } | { sha256: string },
): Promise<InputFileRow | undefined> {
  return "name" in file
    ? byName(db, { executionId, ...file })
    : byHash(db, { executionId, ...file });
}

const fileBy = (column: typeof inputFiles.name | typeof inputFiles.sha256, value: string) =>
  tenantRow((own) =>
    query
      .select()
      .from(inputFiles)
      .where(
        and(
          eq(inputFiles.executionId, given("executionId")),
          eq(column, given(value)),
          own(inputFiles),
        ),
      )
      .limit(1),
  );
const byName = fileBy(inputFiles.name, "name");
const byHash = fileBy(inputFiles.sha256, "sha256");
