import type { Client, InStatement, InValue, ResultSet } from "@libsql/client/web";
import type { LibSQLDatabase } from "drizzle-orm/libsql";
import { drizzle } from "drizzle-orm/libsql/web";
import { SQLiteAsyncDialect } from "drizzle-orm/sqlite-core";
import { getTableColumns, sql, type SQL, type SQLWrapper, type Table } from "drizzle-orm";

/**
 * A libSQL client and drizzle over it. Every write is one statement or one `batch`; committed when
 * it resolves.
 */
export interface Database {
  client: Client;
  orm: LibSQLDatabase;
  /** Resolves when all that was committed so far survives a power cut. */
  durable: () => Promise<void>;
}

/** A client whose commits are visible before they are durable; those of a server are both. */
export interface DurableClient extends Client {
  durable: () => Promise<void>;
}

export function database(client: Client | DurableClient): Database {
  const durable = "durable" in client ? client.durable : async () => {};
  return { client, orm: drizzle(client), durable };
}

/**
 * Settings that hold for the one connection of a local file: readers beside a writer, and commits
 * that reach the disk in their order, when `durable` is asked. A remote server has its own.
 */
export const fileSettings = [
  "PRAGMA journal_mode = WAL",
  "PRAGMA synchronous = NORMAL",
  "PRAGMA foreign_keys = ON",
];

const dialect = new SQLiteAsyncDialect();

/** Runs statements in one immediate transaction: all of them or none. */
export async function batch(
  db: Database,
  queries: (SQLWrapper | InStatement)[],
): Promise<ResultSet[]> {
  return db.client.batch(queries.map(toStatement), "write");
}

function toStatement(query: SQLWrapper | InStatement): InStatement {
  if (typeof query === "string" || !("getSQL" in query)) return query;
  const { sql: text, params } = dialect.sqlToQuery(query.getSQL());
  return { sql: text, args: params as InValue[] };
}

/** An insert of one row that happens only where a condition holds at that instant. */
export function insertWhere<T extends Table>(
  table: T,
  values: T["$inferInsert"],
  condition: SQL | undefined,
): SQL {
  const columns = getTableColumns(table);
  const given = Object.entries(values).flatMap(([key, value]) => {
    const column = columns[key];
    return column && value !== undefined ? [{ column, value: value as unknown }] : [];
  });
  const names = given.map(({ column }) => sql.identifier(column.name));
  const params = given.map(({ column, value }) => sql.param(value, column));
  return sql`insert into ${table} (${sql.join(names, sql`, `)}) select ${sql.join(params, sql`, `)} where ${condition ?? sql`1`}`;
}

/** `a IS b`: equality that also matches NULL with NULL. */
export function equalsOrBothNull(left: SQLWrapper, right: unknown): SQL {
  return sql`${left} is ${right}`;
}
