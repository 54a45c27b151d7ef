import { eq } from "drizzle-orm";
import type { Database } from "./database.ts";
import { settings } from "./schema.ts";

/** Days for which a database keeps ended executions by default; undefined for one from before the default. */
export async function readDefaultRetention(db: Database): Promise<number | undefined> {
  const [row] = await db.orm
    .select({ value: settings.value })
    .from(settings)
    .where(eq(settings.name, "execution_retention_days"));
  return row && Number(row.value);
}
