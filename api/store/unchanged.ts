import { eq, sql, type Column, type Placeholder, type SQL } from "drizzle-orm";
import { equalsOrBothNull } from "./database.ts";
import type { Values } from "./statement.ts";
import type { TenantFilled, TenantStatement } from "./tenant.ts";

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
    const read = sql.param(sql.placeholder(`read.${name}`), column);
    return column.notNull ? eq(column, read) : equalsOrBothNull(column, read);
  });
  const made = new Map<string, TenantStatement>();
  return (row: Record<N, unknown>, change: Values, form: boolean, more?: Values): TenantFilled => {
    const columns = Object.keys(change);
    const name = `${columns.join()} ${form}`;
    const set = () =>
      Object.fromEntries(columns.map((column) => [column, sql.placeholder(column)]));
    const update = made.get(name) ?? make(set(), isUnchanged, form);
    made.set(name, update);
    const values: Values = { ...change, ...more };
    for (const column of decidingColumns) values[`read.${column}`] = row[column];
    return update(values);
  };
}
