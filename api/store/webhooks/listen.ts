import { and, asc, gt, sql } from "drizzle-orm";
import type { StoredEvent } from "../../domain/webhooks/event.ts";
import { tenants, webhookEvents } from "../schema.ts";
import { query } from "../statement.ts";
import { type AnyDb, perTenant, run, tenantRow, tenantRows } from "../tenant.ts";

/**
 * Makes every execution of the tenant that ends before `wanted` (epoch ms) an event. If the stored time is earlier, it
 * stores `extended`, so that the next calls only read.
 *
 * @returns The time until which every end is an event.
 */
export async function keepListening(db: AnyDb, wanted: number, extended: number): Promise<number> {
  const kept = await findUntil(db);
  const until = kept?.until ?? 0;
  if (until >= wanted) return until;
  await run(db, keepUntil({ extended }));
  return extended;
}

const findUntil = tenantRow((own) =>
  query
    .select({ until: sql<number>`min(coalesce(${tenants.listeningUntil}, 0))` })
    .from(tenants)
    .where(own(tenants)),
);
const keepUntil = perTenant(
  (own) => sql`
  update ${tenants} set listening_until = max(coalesce(listening_until, 0), ${sql.placeholder("extended")})
  where ${own(tenants)}`,
);

/**
 * The number of the tenant's newest event; 0 if there is none. Later ones have higher numbers. That of all tenants
 * together would tell when others' jobs end.
 */
export async function lastEvent(db: AnyDb): Promise<number> {
  return (await findLast(db))?.last ?? 0;
}

/** Events with a higher number, oldest first. */
export async function eventsAfter(
  db: AnyDb,
  after: number,
  most: number,
): Promise<(StoredEvent & { seq: number })[]> {
  return newer(db, { after, most });
}

const { seq, tenant, executionId, type, data, createdAt } = webhookEvents;
const findLast = tenantRow((own) =>
  query
    .select({ last: sql<number | null>`max(${seq})` })
    .from(webhookEvents)
    .where(own(webhookEvents)),
);
const newer = tenantRows((own) =>
  query
    .select({ seq, tenant, executionId, type, data, createdAt })
    .from(webhookEvents)
    .where(and(gt(seq, sql.placeholder("after")), own(webhookEvents)))
    .orderBy(asc(seq))
    .limit(sql.placeholder("most")),
);
