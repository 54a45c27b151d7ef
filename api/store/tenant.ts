import type { InStatement, ResultSet } from "@libsql/client/web";
import {
  type Column,
  eq,
  getTableColumns,
  getTableName,
  type Placeholder,
  sql,
  type SQL,
  type SQLWrapper,
} from "drizzle-orm";
import type { SQLiteTable } from "drizzle-orm/sqlite-core";
import { type Database, equalsOrBothNull } from "./database.ts";
import * as schema from "./schema.ts";
import { executions, tenants } from "./schema.ts";
import {
  decoderOf,
  type Filled,
  given,
  keptReader,
  statement,
  type Statement,
  statementOnce,
  type Values,
} from "./statement.ts";

const whole: unique symbol = Symbol("whole");

/**
 * A database that is bound to a tenant: it runs the statements of `perTenant` and nothing else, and they
 * see no record of another tenant. With the tenant "*" they see all records and make none.
 */
export interface TenantDb {
  readonly tenant: string;
  readonly [whole]: Database;
  /** Joins equal reads of one tenant: see Deps.shareRead. */
  share: <T>(key: string, read: () => Promise<T>) => Promise<T>;
  durable: () => Promise<void>;
}

/** Agents, the sender and upkeep have the whole database; clients have their tenant's part. */
export type AnyDb = Database | TenantDb;

export function bindTenant(db: Database, tenant: string, share: TenantDb["share"]): TenantDb {
  return {
    tenant,
    [whole]: db,
    share: (key, read) => share(`${tenant} ${key}`, read),
    durable: db.durable,
  };
}

/** Whose a row is, for answers about all tenants. */
export function ofTenant(db: AnyDb, { tenant }: { tenant: string }): { tenant?: string } {
  return whole in db && db.tenant === "*" ? { tenant } : {};
}

/** Makes the conditions of one statement. */
export interface Owner {
  /** Whether a row of a table is the tenant's. Each mention of a tenant's table needs one, with its alias. */
  (table: SQLiteTable, alias?: string): SQL;
  /** The one exemption: this mention of the table is of anybody's rows. `why` is for the reader. */
  anybody: (table: SQLiteTable, why: string, alias?: string) => SQL;
  /** The value of the column `tenant` of new rows. A handle of all tenants has none, so it makes no rows. */
  readonly tenant: SQL;
  /** Whether the statement is of all tenants: its conditions keep nobody's rows out, and no index begins with them. */
  readonly isAll: boolean;
}

/** Values in a statement of `perTenant`. The handle adds the tenant when it runs. */
export interface TenantFilled {
  texts: Texts;
  values: Values;
}
/** For one tenant, and for all. */
interface Texts {
  one: Statement;
  all: Statement;
}
export type TenantStatement = (values: Values) => TenantFilled;

/**
 * A statement that clients run. It has two texts: for one tenant, and for all. A statement that mentions a
 * tenant's table without `own` does not load.
 */
export function perTenant(make: (own: Owner) => SQLWrapper): TenantStatement {
  return twoTexts(make).run;
}

function twoTexts<B extends SQLWrapper>(make: (own: Owner) => B) {
  const tenant = sql`${given("tenant")}`;
  const of = (table: SQLiteTable, alias?: string) => isOf(table, alias, tenant);
  const built = make(ownerOf(tenant, of));
  const texts = {
    one: statement(built, checked),
    all: statement(make(ownerOf(tenant, anybody)), checked),
  };
  const run: TenantStatement = (values) => ({ texts, values });
  return { run, built };
}

const anybody = () => sql`1`;

function ownerOf(tenant: SQL, condition: (table: SQLiteTable, alias?: string) => SQL): Owner {
  const own = (table: SQLiteTable, alias?: string) =>
    sql`${mark(table, alias)} ${condition(table, alias)}`;
  return Object.assign(own, {
    anybody: (table: SQLiteTable, _why: string, alias?: string) => mark(table, alias),
    tenant,
    isAll: condition === anybody,
  });
}

/**
 * SQLite takes one tenant's rows for ten. Where a statement also names an id, a batch or a session, it would read all rows
 * of the tenant instead. So this says that they are a tenth of the table: more than those, fewer than a scan.
 */
function isOf(table: SQLiteTable, alias: string | undefined, tenant: SQL): SQL {
  const name = sql.identifier(alias ?? getTableName(table));
  if (table === tenants) return sql`${name}."name" = ${tenant}`;
  if ("tenant" in getTableColumns(table)) return sql`likelihood(${name}."tenant" = ${tenant}, 0.1)`;
  return sql`exists (select 1 from ${executions} as "owner"
    where "owner"."id" = ${name}."execution_id" and "owner"."tenant" = ${tenant})`;
}

const mark = (table: SQLiteTable, alias?: string): SQL =>
  sql.raw(`/*own ${mention(getTableName(table), alias)}*/`);
const mention = (table: string, alias?: string) => (alias ? `${table} as ${alias}` : table);

/** Their rows are a tenant's: by their column, or by their execution. */
const owned = new Set<string>([getTableName(tenants)]);
const refused = ["api_keys", "audit", "agent_tokens", "join_codes", "rate_windows"];
for (const table of Object.values(schema) as unknown[]) {
  const columns = isTable(table) ? getTableColumns(table) : {};
  if (isTable(table) && ("tenant" in columns || "executionId" in columns))
    owned.add(getTableName(table));
}

function isTable(value: unknown): value is SQLiteTable {
  return (
    typeof value === "object" && value !== null && Symbol.for("drizzle:IsDrizzleTable") in value
  );
}

const mentions =
  /(?:\b(from|join|update|into)\s+|,\s*)"?(\w+)"?(?=[\s,)]|$)(?:\s+as\s+"?(\w+)"?)?(?:\s*\(([^)]*)\))?/gi;
const checkedTexts = new Map<string, string>();

/**
 * The text without the marks of `own`.
 *
 * @throws Error if a tenant's table is mentioned more often than `own` was asked for it.
 */
function checked(text: string): string {
  const known = checkedTexts.get(text);
  if (known !== undefined) return known;
  const left = new Map<string, number>();
  const marks = [...text.matchAll(/\/\*own (.*?)\*\//g)].map(([, name]) => name!);
  for (const name of marks) left.set(name, (left.get(name) ?? 0) + 1);
  const plain = text.replaceAll(/\/\*own .*?\*\/ ?/g, "");
  for (const [, word, table, alias, list] of plain.matchAll(mentions)) {
    if (refused.includes(table!)) throw new Error(`clients never read ${table}: ${plain}`);
    if (!owned.has(table!) || alias === "owner") continue;
    if (word?.toLowerCase() === "into") {
      const hasOwner = marks.length > 0 || /\btenant\b/.test(list ?? "");
      if (hasOwner) continue;
      throw new Error(`a new row of ${table} has no tenant: ${plain}`);
    }
    const name = mention(table!, alias);
    const rest = (left.get(name) ?? 0) - 1;
    if (rest < 0) throw new Error(`${name} needs own(): ${plain}`);
    left.set(name, rest);
  }
  if (checkedTexts.size < 10_000) checkedTexts.set(text, plain);
  return plain;
}

/** Runs a statement with what the handle may see. */
export async function run(db: AnyDb, filled: TenantFilled): Promise<ResultSet> {
  return clientOf(db).execute(fill(db, filled));
}

/** Runs statements in one immediate transaction: all or none. A tenant's handle takes its own kind only. */
export async function batch(
  db: AnyDb,
  queries: (TenantFilled | InStatement)[],
): Promise<ResultSet[]> {
  const filled = queries.map((query) => {
    if (typeof query === "object" && "texts" in query) return fill(db, query);
    if (whole in db) throw new Error("a tenant's handle runs statements of perTenant only");
    return query;
  });
  return clientOf(db).batch(filled, "write");
}

const clientOf = (db: AnyDb) => (whole in db ? db[whole] : db).client;

/** What this process keeps beside each database. */
export function perDatabase<T>(make: () => T): (db: AnyDb) => T {
  const all = new WeakMap<object, T>();
  return (db) => {
    const key = clientOf(db);
    const known = all.get(key) ?? make();
    all.set(key, known);
    return known;
  };
}

/** Whoever has the whole database names the tenant of a new record among the values. */
function fill(db: AnyDb, { texts, values }: TenantFilled): Filled {
  const tenant = whole in db ? db.tenant : ((values["tenant"] as string | undefined) ?? "*");
  return tenant === "*" ? texts.all(values, null) : texts.one(values, tenant);
}

type Rows<R> = SQLWrapper & PromiseLike<R[]>;

/** A query of `perTenant` that returns rows: see rowsQuery. */
export function tenantRows<R>(make: (own: Owner) => Rows<R>) {
  const { run: query, built } = twoTexts(make);
  const decode = decoderOf(built);
  return async (db: AnyDb, values: Values = {}): Promise<R[]> => {
    const { rows } = await run(db, query(values));
    return rows.map((row) => decode(row) as R);
  };
}

/** The same for a query of tables that seldom change: see KeepRead. */
export function keptTenantRows<R>(make: (own: Owner) => Rows<R>, key?: string) {
  const { run: query, built } = twoTexts(make);
  const read = keptReader(built, key);
  return async (db: AnyDb, values: Values = {}): Promise<R[]> =>
    read(clientOf(db), fill(db, query(values)));
}

/** The same for a query that has at most one row. */
export function tenantRow<R>(make: (own: Owner) => Rows<R>) {
  const read = tenantRows(make);
  return async (db: AnyDb, values?: Values): Promise<R | undefined> => (await read(db, values))[0];
}

/** Rows of a query that is made for each call, such as a list with filters. */
export async function listRows<R>(db: AnyDb, make: (own: Owner) => Rows<R>): Promise<R[]> {
  const isAll = !(whole in db) || db.tenant === "*";
  const tenant = isAll ? sql`null` : sql`${db.tenant}`;
  const built = make(
    ownerOf(tenant, isAll ? anybody : (table, alias) => isOf(table, alias, tenant)),
  );
  const { rows } = await clientOf(db).execute(statementOnce(built, checked)({}));
  const decode = decoderOf(built);
  return rows.map((row) => decode(row) as R);
}

/**
 * Fills in updates of a row as it was read, which write only if its deciding columns have not changed since.
 * One statement is made for each set of columns.
 *
 * @param make Makes the statement that sets some columns, in one of two forms.
 */
export function unchangedUpdates<N extends string>(
  table: Readonly<Record<N, Column>>,
  decidingColumns: readonly N[],
  make: (set: Record<string, Placeholder>, isUnchanged: SQL[], form: boolean) => TenantStatement,
) {
  const isUnchanged = decidingColumns.map((name) => {
    const column = table[name];
    const read = sql.param(given(`read.${name}`), column);
    return column.notNull ? eq(column, read) : equalsOrBothNull(column, read);
  });
  const made = new Map<string, TenantStatement>();
  return (row: Record<N, unknown>, change: Values, form: boolean, more?: Values): TenantFilled => {
    const columns = Object.keys(change);
    const name = `${columns.join()} ${form}`;
    const set = () => Object.fromEntries(columns.map((column) => [column, given(column)]));
    const update = made.get(name) ?? make(set(), isUnchanged, form);
    made.set(name, update);
    const values: Values = { ...change, ...more };
    for (const column of decidingColumns) values[`read.${column}`] = row[column];
    return update(values);
  };
}

/** Size of the database in bytes without its free pages, which are used before it grows. */
export async function databaseBytes(db: AnyDb): Promise<number> {
  const { rows } = await run(db, size({}));
  return Number(rows[0]!["bytes"]);
}

/** SQLite reads these from the file's header. Source: sqlite.org/pragma.html, page_count and freelist_count. */
const size = perTenant(
  () => sql`SELECT (page_count - freelist_count) * page_size AS bytes
  FROM pragma_page_count, pragma_freelist_count, pragma_page_size`,
);
