import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import type { Scope } from "../../../shared/wire/client/keys.ts";

/**
 * Who owns records. A limit that is null does not hold. Times are epoch milliseconds. The migration says WITHOUT
 * ROWID, which drizzle does not know: triggers find a row with one look instead of two.
 */
export const tenants = sqliteTable(
  "tenants",
  {
    /** `[a-z0-9][a-z0-9-]{0,62}` */
    name: text("name").primaryKey(),
    createdAt: integer("created_at").notNull(),
    /** The time until which somebody counts as listening to its webhook events. */
    listeningUntil: integer("listening_until"),
    /** The last UTC day, in days since 1970, on which the tenant was made, submitted a job or made a session. */
    usedDay: integer("used_day").notNull().default(0),

    /** What it uses now. Triggers keep these. */
    queued: integer("queued").notNull().default(0),
    running: integer("running").notNull().default(0),
    storedBytes: integer("stored_bytes").notNull().default(0),
    /** A UTC day, in days since 1970, and the CPU time of its jobs that ended on it. */
    cpuDay: integer("cpu_day").notNull().default(0),
    cpuMs: integer("cpu_ms").notNull().default(0),

    maxQueued: integer("max_queued"),
    maxRunning: integer("max_running"),
    maxStoredBytes: integer("max_stored_bytes"),
    maxCpuSDay: integer("max_cpu_s_day"),
    maxRequests: integer("max_requests"),
  },
  // A claim reads those alone that have the limit.
  (t) => [
    index("tenants_bounded")
      .on(t.name)
      .where(sql`${t.maxRunning} IS NOT NULL`),
    index("tenants_used").on(t.usedDay),
  ],
);

/** Keys that operators made. Those of the configuration are not here. Times are epoch milliseconds. */
export const apiKeys = sqliteTable(
  "api_keys",
  {
    /** UUID, version 7. A rotation keeps it. */
    id: text("id").primaryKey(),
    tenant: text("tenant")
      .notNull()
      .references(() => tenants.name),
    name: text("name").notNull(),
    /** SHA-256 (hex) of the key. Only its holder has the key itself. */
    keyHash: text("key_hash").notNull().unique(),
    scopes: text("scopes", { mode: "json" }).$type<Scope[]>().notNull(),
    createdAt: integer("created_at").notNull(),
    /** Id of the key that made it; null if a command did. */
    createdBy: text("created_by"),
    expiresAt: integer("expires_at"),
    revokedAt: integer("revoked_at"),
    lastUsedAt: integer("last_used_at"),
  },
  (t) => [index("api_keys_tenant").on(t.tenant, t.id)],
);

/** Former keys: they were rotated, and stay valid for a while. */
export const formerKeys = sqliteTable(
  "former_keys",
  {
    /** SHA-256 (hex). */
    hash: text("hash").primaryKey(),
    keyId: text("key_id")
      .notNull()
      .references(() => apiKeys.id),
    /** Epoch ms. */
    until: integer("until").notNull(),
  },
  (t) => [index("former_keys_key").on(t.keyId, t.until)],
);

/** What was done, by whom. Triggers refuse changes, and removals within 30 days. */
export const audit = sqliteTable(
  "audit",
  {
    id: integer("id").primaryKey({ autoIncrement: true }),
    /** Epoch ms. */
    at: integer("at").notNull(),
    /** Null if a command did it. */
    keyId: text("key_id"),
    keyName: text("key_name").notNull(),
    tenant: text("tenant").notNull(),
    action: text("action").notNull(),
    /** Id or name of what it was done to. */
    target: text("target").notNull(),
    detail: text("detail", { mode: "json" }).$type<Record<string, unknown>>(),
    correlationId: text("correlation_id").notNull(),
    clientIp: text("client_ip"),
  },
  (t) => [
    index("audit_at").on(t.at),
    index("audit_action").on(t.action, t.id),
    index("audit_tenant").on(t.tenant, t.id),
  ],
);
