import { sql } from "drizzle-orm";
import { check, index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { type WebhookType } from "../../../shared/wire/client/webhook-type.ts";
import { deliveryStatuses } from "../../../shared/wire/client/webhook.ts";
import { inList, tenant } from "./columns.ts";

/**
 * Events for receivers and listeners. A trigger on the transition (0001_triggers.sql) writes them,
 * so that no way to end an execution is forgotten. Times are epoch milliseconds.
 */
export const webhookEvents = sqliteTable(
  "webhook_events",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    tenant: tenant(),
    executionId: text("execution_id").notNull().unique(),
    type: text("type").$type<WebhookType>().notNull(),
    /** JSON of domain/webhooks/event.ts. It outlives the execution's record. */
    data: text("data").notNull(),
    callbackUrl: text("callback_url"),
    createdAt: integer("created_at").notNull(),
    /** It has a delivery for each receiver. */
    isFannedOut: integer("is_fanned_out", { mode: "boolean" }).notNull().default(false),
  },
  (t) => [
    index("webhook_events_new")
      .on(t.seq)
      .where(sql`${t.isFannedOut} = 0`),
    index("webhook_events_created_at").on(t.createdAt),
    index("webhook_events_tenant").on(t.tenant, t.seq),
  ],
);

/** One event on its way to one receiver. */
export const webhookDeliveries = sqliteTable(
  "webhook_deliveries",
  {
    id: integer("id").primaryKey({ autoIncrement: true }),
    eventSeq: integer("event_seq")
      .notNull()
      .references(() => webhookEvents.seq, { onDelete: "cascade" }),
    tenant: tenant(),
    executionId: text("execution_id").notNull(),
    /** Name of a configured endpoint, or origin of a callback: calls to one receiver are bounded. */
    receiver: text("receiver").notNull(),
    callbackUrl: text("callback_url"),
    status: text("status", { enum: deliveryStatuses }).notNull().default("pending"),
    /** Number of calls since it was made or last sent again; then the number of all calls. */
    tries: integer("tries").notNull().default(0),
    attempts: integer("attempts").notNull().default(0),
    dueAt: integer("due_at").notNull(),
    /** End of a sender's claim. If the sender dies, another one calls after this time. */
    claimedUntil: integer("claimed_until"),
    lastStatusCode: integer("last_status_code"),
    lastError: text("last_error"),
    createdAt: integer("created_at").notNull(),
    changedAt: integer("changed_at").notNull(),
    endedAt: integer("ended_at"),
  },
  (t) => [
    uniqueIndex("webhook_deliveries_receiver").on(t.eventSeq, t.receiver),
    index("webhook_deliveries_due")
      .on(t.receiver, t.dueAt)
      .where(sql`${t.status} = 'pending'`),
    index("webhook_deliveries_tenant").on(t.tenant, t.id),
    index("webhook_deliveries_execution").on(t.executionId),
    index("webhook_deliveries_endpoint").on(t.tenant, t.receiver, t.id),
    index("webhook_deliveries_status").on(t.tenant, t.status, t.id),
    index("webhook_deliveries_changed_at").on(t.changedAt),
    check("delivery_status_known", sql`${t.status} IN (${inList(deliveryStatuses)})`),
    check("delivery_ended", sql`(${t.status} = 'pending') = (${t.endedAt} IS NULL)`),
  ],
);

/** Condition of the partial indexes, as literal text: see `isQueued`. */
export const isPending = sql`${webhookDeliveries.status} = 'pending'`;
export const isNewEvent = sql`${webhookEvents.isFannedOut} = 0`;
