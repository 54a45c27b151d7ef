import { lt, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { rateWindows } from "./schema.ts";
import { query, rowsQuery } from "./statement.ts";

const now = sql.placeholder("now");
const { client, hits, endsAt } = rateWindows;

const count = rowsQuery(
  query
    .insert(rateWindows)
    .values({ client: sql.placeholder("client"), hits: 1, endsAt: sql.placeholder("newEnd") })
    .onConflictDoUpdate({
      target: client,
      set: {
        hits: sql`case when ${endsAt} <= ${now} then 1 else ${hits} + 1 end`,
        endsAt: sql`case when ${endsAt} <= ${now} then excluded.ends_at else ${endsAt} end`,
      },
    })
    .returning({ hits, endsAt }),
);

/** Counts a request of a client. Returns the count of its window, and the window's end (epoch ms). */
export async function countHit(
  db: Database,
  values: { client: string; now: number; newEnd: number },
): Promise<{ hits: number; endsAt: number }> {
  const [window] = await count(db, values);
  return window!;
}

export async function forgetWindowsBefore(db: Database, time: number): Promise<void> {
  await db.orm.delete(rateWindows).where(lt(endsAt, time));
}
