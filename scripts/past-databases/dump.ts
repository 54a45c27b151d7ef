import type { Client } from "@libsql/client";

/** A database as SQL: tables, their rows, then indexes and triggers, so that no trigger fires. */
export async function dump(client: Client): Promise<string> {
  const made = await client.execute(
    "SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid",
  );
  const objects = made.rows.map((row) => ({
    name: row["name"] as string,
    isTable: row["type"] === "table",
    sql: `${row["sql"] as string};`,
  }));
  const tables = objects.filter(({ isTable }) => isTable);
  const own = tables.filter(({ name }) => name !== "sqlite_sequence");
  const rows: string[] = [];
  for (const { name } of tables) {
    const { columns } = await client.execute(`SELECT * FROM "${name}" LIMIT 0`);
    const values = columns.map((column) => `quote("${column}")`).join(" || ', ' || ");
    const quoted = await client.execute(`SELECT ${values} AS "values" FROM "${name}"`);
    const listed = columns.map((column) => `"${column}"`).join(", ");
    for (const row of quoted.rows) {
      rows.push(`INSERT INTO "${name}" (${listed}) VALUES (${row["values"] as string});`);
    }
  }
  const rest = objects.filter(({ isTable }) => !isTable);
  return [
    "PRAGMA foreign_keys = OFF;",
    "BEGIN;",
    ...own.map(({ sql }) => sql),
    ...rows,
    ...rest.map(({ sql }) => sql),
    "COMMIT;\n",
  ].join("\n");
}
