import { and, desc, eq, getTableColumns, lt, sql } from "drizzle-orm";
import type { WebhookType } from "../../../shared/wire/client/webhook-type.ts";
import type { WebhookDelivery } from "../../../shared/wire/client/webhook.ts";
import { query } from "../statement.ts";
import { type AnyDb, listRows, tenantRow } from "../tenant.ts";
import { webhookDeliveries, webhookEvents } from "../schema.ts";
import type { DeliveryRow } from "./deliveries.ts";

export interface DeliveryFilter {
  status: WebhookDelivery["status"] | undefined;
  endpoint: string | undefined;
  jobId: string | undefined;
  /** Only deliveries with a lower id. */
  before: number | undefined;
}

/** Deliveries with the type of their event, newest first. */
export async function listDeliveries(
  db: AnyDb,
  { status, endpoint, jobId, before }: DeliveryFilter,
  limit: number,
): Promise<(DeliveryRow & { type: WebhookType })[]> {
  const d = webhookDeliveries;
  const isWanted = [
    status && eq(d.status, status),
    endpoint === undefined ? undefined : eq(d.receiver, endpoint),
    jobId === undefined ? undefined : eq(d.executionId, jobId),
    before === undefined ? undefined : lt(d.id, before),
  ];
  return listRows(db, (own) =>
    query
      .select({ ...getTableColumns(d), type: sql<WebhookType>`${webhookEvents.type}` })
      .from(d)
      .innerJoin(webhookEvents, eq(webhookEvents.seq, d.eventSeq))
      .where(and(...isWanted, own(d), own(webhookEvents)))
      .orderBy(desc(d.id))
      .limit(limit),
  );
}

/** Type of a delivery's event. */
export async function typeOf(db: AnyDb, { eventSeq }: DeliveryRow): Promise<WebhookType> {
  return (await typeBySeq(db, { eventSeq }))!.type;
}

const typeBySeq = tenantRow((own) =>
  query
    .select({ type: webhookEvents.type })
    .from(webhookEvents)
    .where(and(eq(webhookEvents.seq, sql.placeholder("eventSeq")), own(webhookEvents))),
);
