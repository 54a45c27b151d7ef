import { asc, gte, lt, sql } from "drizzle-orm";
import { transact, type Database } from "./database.ts";
import { counts, minutes } from "./schema.ts";
import { query } from "./statement.ts";

export type Minute = typeof minutes.$inferSelect;

/** Records a minute, unless another process has, and removes minutes before a time. */
export async function addMinute(
  db: Database,
  { at, pending, running, slots }: Omit<Minute, "ended">,
  keepSince: number,
): Promise<void> {
  await transact(db, [
    sql`insert or ignore into ${minutes} (at, pending, running, slots, ended)
        select ${at}, ${pending}, ${running}, ${slots}, coalesce(json_group_object(label, n), '{}')
        from (select label, sum(n) as n from ${counts} where name = 'executions' group by label)`,
    query.delete(minutes).where(lt(minutes.at, keepSince)),
  ]);
}

/** The newest minute that is recorded; undefined if there is none. */
export async function lastMinute(db: Database): Promise<number | undefined> {
  const [row] = await db.orm.select({ at: sql<number | null>`max(${minutes.at})` }).from(minutes);
  return row?.at ?? undefined;
}

/** The minutes from a time on, the oldest first. */
export async function minutesSince(db: Database, time: number): Promise<Minute[]> {
  return db.orm.select().from(minutes).where(gte(minutes.at, time)).orderBy(asc(minutes.at));
}
