import type { Database } from "./database.ts";

/** Bytes that the database is made of, less its free pages, which it fills first. */
export async function databaseBytes({ client }: Database): Promise<number> {
  const { rows } = await client.execute(sizeSql);
  return Number(rows[0]!["bytes"]);
}

/** From the file's header. Source: sqlite.org/pragma.html, page_count and freelist_count. */
const sizeSql = `SELECT (page_count - freelist_count) * page_size AS bytes
  FROM pragma_page_count, pragma_freelist_count, pragma_page_size`;
