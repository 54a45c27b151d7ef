import { count, eq } from "drizzle-orm";
import type { Database } from "./database.ts";
import { executions } from "./schema.ts";

/** How many executions wait, and how many are leased. */
export async function queueStats(db: Database): Promise<{ pending: number; running: number }> {
  const [pending, running] = await Promise.all(
    (["queued", "running"] as const).map((status) =>
      db.orm.select({ n: count() }).from(executions).where(eq(executions.status, status)),
    ),
  );
  return { pending: pending?.[0]?.n ?? 0, running: running?.[0]?.n ?? 0 };
}
