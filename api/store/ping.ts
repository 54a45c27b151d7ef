import type { Database } from "./database.ts";
import { agents } from "./schema.ts";

/** Reads from the schema. Rejects if the database is out of reach or was never migrated. */
export async function ping(db: Database): Promise<void> {
  await db.orm.select({ id: agents.id }).from(agents).limit(1);
}
