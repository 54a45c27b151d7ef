import type { Client, InStatement, InValue, ResultSet, Value } from "@libsql/client/web";
import {
  Column,
  is,
  Param,
  Placeholder,
  sql,
  type InferColumnsDataTypes,
  type SQL,
  type SQLWrapper,
} from "drizzle-orm";
import { drizzle } from "drizzle-orm/libsql/web";
import { SQLiteAsyncDialect } from "drizzle-orm/sqlite-core";
import { changedWith, type Database, keptRead, keptTables } from "./database.ts";

/** Builds queries without a database. */
export const query = drizzle.mock();

/** Values of a query's placeholders, by name. */
export type Values = Record<string, unknown>;

export type Filled = Exclude<InStatement, string>;

/** A query of the hot path. Its text is built once; a call only fills in the placeholders. */
export interface Statement {
  /**
   * @param tenant The value of the placeholder `tenant`; null if it has none. It is no copy of the values with
   *   one more, because copies took 4 % of the time of a result.
   */
  (values: Values, tenant?: string | null): Filled;
  text: string;
  /** Of its placeholders. */
  names: string[];
}

const dialect = new SQLiteAsyncDialect();

/** Every statement whose text is built once, for tests that run all of them. */
export const registry: Statement[] = [];

export function statement(built: SQLWrapper, edit?: (text: string) => string): Statement {
  const made = statementOnce(built, edit);
  registry.push(made);
  return made;
}

/** A statement that is made for one call. */
export function statementOnce(built: SQLWrapper, edit = (text: string) => text): Statement {
  const { sql: made, params } = dialect.sqlToQuery(built.getSQL());
  const text = edit(made);
  const fill = params.map(toArgument);
  const names = params.flatMap((param) => nameOf(param) ?? []);
  const filled = (values: Values, tenant?: string | null): Filled => ({
    sql: text,
    args: fill.map((argument) => argument(values, tenant)),
  });
  return Object.assign(filled, { text, names });
}

function nameOf(param: unknown): string | undefined {
  const value: unknown = is(param, Param) ? param.value : param;
  return is(value, Placeholder) ? value.name : undefined;
}

function toArgument(param: unknown): (values: Values, tenant?: string | null) => InValue {
  if (is(param, Placeholder)) {
    const { name } = param;
    if (name === "tenant")
      return (values, tenant = valueOf(values, name) as string) => tenant ?? missing(name);
    return (values) => valueOf(values, name) as InValue;
  }
  if (is(param, Param) && is(param.value, Placeholder)) {
    const { name } = param.value;
    return (values) => {
      const value = valueOf(values, name);
      return value === null ? null : (param.encoder.mapToDriverValue(value) as InValue);
    };
  }
  return () => param as InValue;
}

function valueOf(values: Values, name: string): unknown {
  const value = values[name];
  return value === undefined ? missing(name) : value;
}

function missing(name: string): never {
  throw new TypeError(`no value for ${name}`);
}

/** A value that a call fills in. */
export const given = sql.placeholder;

/** The values of a placeholder that is a JSON array, so that lists of any length give the same query text. */
export function listed(name: string): SQL {
  return sql`(select value from json_each(${given(name)}))`;
}

/** A query of the hot path that returns rows. They are of the type that the query promises. */
export function rowsQuery<R>(built: SQLWrapper & PromiseLike<R[]>) {
  const fill = statement(built);
  const decode = decoderOf(built);
  return async (db: Database, values: Values = {}): Promise<R[]> => {
    const { rows } = await db.client.execute(fill(values));
    return rows.map((row) => decode(row) as R);
  };
}

/** The same for a query of tables that seldom change: see KeepRead. */
export function keptRowsQuery<R>(built: SQLWrapper & PromiseLike<R[]>) {
  const fill = statement(built);
  const read = keptReader(built);
  return (db: Database, values: Values = {}): Promise<R[]> => read(db.client, fill(values));
}

/**
 * Reads the rows of a query of tables that seldom change. They are shared, so they are frozen.
 *
 * @throws Error if the query mentions another table.
 */
export function keptReader<R>(built: SQLWrapper & PromiseLike<R[]>, key?: string) {
  const decode = decoderOf(built);
  const { sql: text } = dialect.sqlToQuery(built.getSQL());
  const mentioned = [...text.matchAll(/\b(?:from|join)\s+"(\w+)"/gi)].map(([, name]) => name!);
  const tables = mentioned.map((name) => changedWith[name] ?? name);
  const other = tables.find((table) => !keptTables.includes(table));
  if (other !== undefined) throw new Error(`${other} changes too often to be kept: ${text}`);
  const decodeAll = ({ rows }: ResultSet): R[] =>
    Object.freeze(rows.map((row) => Object.freeze(decode(row)))) as R[];
  return (client: Client, filled: Filled): Promise<R[]> =>
    keptRead(client, { statement: filled, tables, decode: decodeAll, key });
}

/** What drizzle itself decodes rows with, in the order of the select. */
export function decoderOf(built: SQLWrapper) {
  const { fields } = (built as unknown as Preparable).prepare();
  return decodeFields(fields.map(({ path, field }) => [path[0]!, field]));
}

/** The same for a query that has at most one row. */
export function rowQuery<R>(built: SQLWrapper & PromiseLike<R[]>) {
  const read = rowsQuery(built);
  return async (db: Database, values?: Values): Promise<R | undefined> =>
    (await read(db, values))[0];
}

type Field = Column | { decoder: Pick<Column, "mapFromDriverValue"> };

interface Preparable {
  prepare(): { fields: { path: string[]; field: Field }[] };
}

/** Turns a driver's row into a record. */
export function decoder<C extends Record<string, Column>>(columns: C) {
  return decodeFields(Object.entries(columns)) as (row: Row) => InferColumnsDataTypes<C>;
}

type Row = ResultSet["rows"][number];

function decodeFields(named: [name: string, field: Field][]) {
  const fields = named.map(([name, field]) => {
    const source = is(field, Column) ? field : field.decoder;
    const isPlain = source.mapFromDriverValue === Column.prototype.mapFromDriverValue;
    return { name, read: isPlain ? undefined : source };
  });
  return (row: Row): Record<string, unknown> => {
    const record: Record<string, unknown> = {};
    for (let i = 0; i < fields.length; i++) {
      const { name, read } = fields[i]!;
      const value = row[i] as Value;
      record[name] = value === null || !read ? value : read.mapFromDriverValue(value);
    }
    return record;
  };
}
