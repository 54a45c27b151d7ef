import { sql } from "drizzle-orm";
import { type AnyDb, perTenant, run } from "./tenant.ts";

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
