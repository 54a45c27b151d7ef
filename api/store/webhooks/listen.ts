import { asc, eq, getTableName, gt, sql } from "drizzle-orm";
import type { StoredEvent } from "../../domain/webhooks/event.ts";
import type { Database } from "../database.ts";
import { settings, webhookEvents } from "../schema.ts";
import { statement } from "../statement.ts";

const untilSetting = "webhook_listening_until";

/**
 * Makes every execution that ends before `wanted` (epoch ms) an event. If the stored time is earlier, it
 * stores `extended`, so that the next calls only read.
 *
 * @returns The time until which every end is an event.
 */
export async function keepListening(
  { orm }: Database,
  wanted: number,
  extended: number,
): Promise<number> {
  const [kept] = await orm
    .select({ value: settings.value })
    .from(settings)
    .where(eq(settings.name, untilSetting));
  const until = Number(kept?.value ?? 0);
  if (until >= wanted) return until;
  await orm
    .insert(settings)
    .values({ name: untilSetting, value: String(extended) })
    .onConflictDoUpdate({
      target: settings.name,
      set: { value: String(extended) },
      setWhere: sql`cast(${settings.value} as integer) < ${extended}`,
    });
  return extended;
}

/** The number of the newest event, also if it was removed; 0 if there was none. Later ones have higher numbers. */
export async function lastEvent({ client }: Database): Promise<number> {
  const { rows } = await client.execute(findLast({}));
  return Number(rows[0]?.[0] ?? 0);
}

/** SQLite's own table says which number was the last. */
const findLast = statement(sql`
  select seq from sqlite_sequence where name = ${getTableName(webhookEvents)}`);

/** Events with a higher number, oldest first. */
export async function eventsAfter(
  { orm }: Database,
  after: number,
  most: number,
): Promise<(StoredEvent & { seq: number })[]> {
  const { seq, executionId, type, data, createdAt } = webhookEvents;
  return orm
    .select({ seq, executionId, type, data, createdAt })
    .from(webhookEvents)
    .where(gt(seq, after))
    .orderBy(asc(seq))
    .limit(most);
}
