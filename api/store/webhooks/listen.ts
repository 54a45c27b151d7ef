import { and, asc, eq, getTableName, gt, sql } from "drizzle-orm";
import type { StoredEvent } from "../../domain/webhooks/event.ts";
import { settings, webhookEvents } from "../schema.ts";
import { query } from "../statement.ts";
import { type AnyDb, perTenant, run, tenantRow, tenantRows } from "../tenant.ts";

const untilSetting = "webhook_listening_until";

/**
 * Makes every execution that ends before `wanted` (epoch ms) an event. If the stored time is earlier, it
 * stores `extended`, so that the next calls only read.
 *
 * @returns The time until which every end is an event.
 */
export async function keepListening(db: AnyDb, wanted: number, extended: number): Promise<number> {
  const kept = await findUntil(db);
  const until = Number(kept?.value ?? 0);
  if (until >= wanted) return until;
  await run(db, keepUntil({ extended: String(extended) }));
  return extended;
}

const findUntil = tenantRow(() =>
  query.select({ value: settings.value }).from(settings).where(eq(settings.name, untilSetting)),
);
const keepUntil = perTenant(
  () => sql`
  insert into ${settings} (name, value) values (${untilSetting}, ${sql.placeholder("extended")})
  on conflict do update set value = excluded.value
  where cast(${settings.value} as integer) < cast(excluded.value as integer)`,
);

/** The number of the newest event, also if it was removed; 0 if there was none. Later ones have higher numbers. */
export async function lastEvent(db: AnyDb): Promise<number> {
  const { rows } = await run(db, findLast({}));
  return Number(rows[0]?.[0] ?? 0);
}

/** SQLite's own table says which number was the last. */
const findLast = perTenant(
  () => sql`
  select seq from sqlite_sequence where name = ${getTableName(webhookEvents)}`,
);

/** Events with a higher number, oldest first. */
export async function eventsAfter(
  db: AnyDb,
  after: number,
  most: number,
): Promise<(StoredEvent & { seq: number })[]> {
  return newer(db, { after, most });
}

const { seq, executionId, type, data, createdAt } = webhookEvents;
const newer = tenantRows((own) =>
  query
    .select({ seq, executionId, type, data, createdAt })
    .from(webhookEvents)
    .where(and(gt(seq, sql.placeholder("after")), own(webhookEvents)))
    .orderBy(asc(seq))
    .limit(sql.placeholder("most")),
);
