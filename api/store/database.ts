import type { Client, InStatement, InValue, ResultSet } from "@libsql/client/web";
import { getTableColumns, sql, type SQL, type SQLWrapper, type Table } from "drizzle-orm";
import type { LibSQLDatabase } from "drizzle-orm/libsql";
import { drizzle } from "drizzle-orm/libsql/web";
import { SQLiteAsyncDialect } from "drizzle-orm/sqlite-core";

/**
 * A libSQL client, and drizzle on top of it. Every write is one statement or one `transact`, and is
 * committed when its promise resolves.
 */
export interface Database {
  client: Client;
  orm: LibSQLDatabase;
  /** Resolves when everything committed so far survives a power cut. */
  durable: () => Promise<void>;
}

/** A client whose commits are visible before they are durable. A server's commits are both at once. */
export interface DurableClient extends Client {
  durable: () => Promise<void>;
  kept: KeepRead;
}

/**
 * Runs a read of tables that seldom change (`keptTables`), or returns what it returned before: as long as neither this
 * client nor another process has changed one of these tables since.
 */
type KeepRead = <R>(read: Read<R>) => Promise<R>;

export interface Read<R> {
  statement: Exclude<InStatement, string>;
  /** What it is kept by, if not by its text and values: a caller may ask only for what it does not yet know. */
  key?: string | undefined;
  tables: readonly string[];
  /** Makes the value that is kept. Callers share it, so nobody may change it. */
  decode: (result: ResultSet) => R;
}

/** Tables that seldom change. No trigger and no foreign key changes them. */
export const keptTables: readonly string[] = ["agents", "agent_tokens", "builds", "job_types"];
/** Tables that triggers of one of them write, and nothing else. */
export const changedWith: Readonly<Record<string, string>> = { agent_changes: "agents" };

export function database(client: Client | DurableClient): Database {
  const durable = "durable" in client ? client.durable : async () => {};
  return { client, orm: drizzle(client), durable };
}

/**
 * Settings of the one connection to a local file: reads during a write, and commits that reach the disk
 * in order when `durable` is called. A remote server has its own settings.
 */
export const fileSettings = [
  "PRAGMA journal_mode = WAL",
  "PRAGMA synchronous = NORMAL",
  "PRAGMA foreign_keys = ON",
];

const dialect = new SQLiteAsyncDialect();

/** See KeepRead. A server has other writers, so it is asked each time. */
export async function keptRead<R>(client: Client | DurableClient, read: Read<R>): Promise<R> {
  if ("kept" in client) return client.kept(read);
  return read.decode(await client.execute(read.statement));
}

/** Runs statements in one immediate transaction: all or none. */
export async function transact(
  db: Database,
  queries: (SQLWrapper | InStatement)[],
): Promise<ResultSet[]> {
  return db.client.batch(queries.map(toStatement), "write");
}

export function toStatement(query: SQLWrapper | InStatement): InStatement {
  if (typeof query === "string" || !("getSQL" in query)) return query;
  const { sql: text, params } = dialect.sqlToQuery(query.getSQL());
  return { sql: text, args: params as InValue[] };
}

/** Inserts one row if a condition is true when the statement runs; `from` is a row that the values use. */
export function insertWhere<T extends Table>(
  table: T,
  values: T["$inferInsert"],
  condition: SQL | undefined,
  from = sql``,
): SQL {
  const columns = getTableColumns(table);
  const given = Object.entries(values).flatMap(([key, value]) => {
    const column = columns[key];
    return column && value !== undefined ? [{ column, value: value as unknown }] : [];
  });
  const names = given.map(({ column }) => sql.identifier(column.name));
  const params = given.map(({ column, value }) => sql.param(value, column));
  return sql`insert into ${table} (${sql.join(names, sql`, `)}) select ${sql.join(params, sql`, `)} ${from} where ${condition ?? sql`1`}`;
}

/** `a IS b`: like `=`, but NULL equals NULL. */
export function equalsOrBothNull(left: SQLWrapper, right: unknown): SQL {
  return sql`${left} is ${right}`;
}

/** Longer than any statement of the API takes. */
export const remoteTimeoutMs = 10_000;

/**
 * SERVER_ERROR: a server gave no whole answer, or refused the request. CLIENT_CLOSED: the call waited for a connection
 * that was being replaced.
 */
const outageCodes =
  /^(SQLITE_(BUSY|LOCKED|FULL|IOERR|CANTOPEN|READONLY|PROTOCOL)|SERVER_ERROR$|CLIENT_CLOSED$)/;

/** Whether an error means that the database is locked, full or out of reach; any other error is a bug. */
export function isStoreOutage(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    const code = (at as { code?: unknown }).code;
    if (typeof code === "string" && outageCodes.test(code)) return true;
    // workerd's message for a connection that is refused or lost.
    if ((at as { retryable?: unknown }).retryable === true) return true;
  }
  return false;
}

/**
 * Whether the database takes no value or row of such a size: SQLite's words, which a server gives under several codes.
 * libSQL's servers take 5 MB (`max_row_size` of a namespace).
 */
export function isTooLargeForStore(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (at.message.includes("string or blob too big")) return true;
  }
  return false;
}

const patienceMs = 60_000;
const pauseMs = 500;

/**
 * Repeats work for up to `patienceMs` while the database is out of reach. It is for a request whose job
 * is or may be stored: a client that got an error would send the job again.
 */
export async function rideOut<T>(
  { now }: { readonly now: () => number },
  work: () => Promise<T>,
): Promise<T> {
  for (const giveUpAt = now() + patienceMs; ;) {
    try {
      return await work();
    } catch (error) {
      if (!isStoreOutage(error) || now() >= giveUpAt) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
