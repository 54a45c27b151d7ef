import { sql } from "drizzle-orm";
import { check, index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { endReasons } from "../../../shared/wire/end-reason.ts";
import { type ExecutionError } from "../../../shared/wire/errors.ts";
import { containerBackends } from "../../../shared/wire/execution.ts";
import { sessionStatuses } from "../../../shared/wire/client/session.ts";
import { inList, tenant } from "./columns.ts";

/** One row per session; its calls are executions with its id. Times are epoch milliseconds. */
export const sessions = sqliteTable(
  "sessions",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    id: text("id").notNull().unique(),
    tenant: tenant(),
    status: text("status", { enum: sessionStatuses }).notNull().default("queued"),
    /** Why it has ended. */
    reason: text("reason", { enum: endReasons }),
    error: text("error", { mode: "json" }).$type<ExecutionError>(),

    jobType: text("job_type").notNull(),
    jobVersion: text("job_version").notNull().default("latest"),
    jobRef: text("job_ref"),
    requirements: text("requirements", { mode: "json" }).$type<string[]>().notNull(),
    startupTimeoutS: integer("startup_timeout_s").notNull(),
    /** Null once it has ended: values may be secrets. */
    env: text("env", { mode: "json" }).$type<Record<string, string>>(),
    /** Ids of its contexts beside the default one. */
    contexts: text("contexts", { mode: "json" }).$type<string[]>().notNull().default([]),
    /** Number of its last call. A trigger keeps it. */
    calls: integer("calls").notNull().default(0),

    attempt: integer("attempt").notNull().default(0),
    leaseId: text("lease_id"),
    agentId: text("agent_id"),
    leaseExpiresAt: integer("lease_expires_at"),
    containerRuntime: text("container_runtime"),
    containerBackend: text("container_backend", { enum: containerBackends }),
    pythonVersion: text("python_version"),

    createdAt: integer("created_at").notNull(),
    /** When its present lease began. */
    startedAt: integer("started_at"),
    readyAt: integer("ready_at"),
    /** When its last call ended. A trigger keeps it. */
    usedAt: integer("used_at"),
    endedAt: integer("ended_at"),
    /** When its lifetime is over. */
    expiresAt: integer("expires_at").notNull(),
    /** Null: it may be idle for all its lifetime. */
    idleTimeoutS: integer("idle_timeout_s"),

    metadata: text("metadata", { mode: "json" }).$type<Record<string, string>>(),
    idempotencyKey: text("idempotency_key"),
    /** SHA-256 of its request, to recognise an equal one. */
    submissionHash: text("submission_hash").notNull(),
    keyId: text("key_id"),
    correlationId: text("correlation_id").notNull(),
    clientIp: text("client_ip").notNull(),
    traceparent: text("traceparent"),
  },
  (t) => [
    index("sessions_tenant").on(t.tenant, t.id),
    uniqueIndex("sessions_idempotency_key")
      .on(t.tenant, t.idempotencyKey)
      .where(sql`${t.idempotencyKey} IS NOT NULL`),
    uniqueIndex("sessions_lease")
      .on(t.leaseId)
      .where(sql`${t.leaseId} IS NOT NULL`),
    index("sessions_open")
      .on(t.tenant)
      .where(sql`${t.status} <> 'ended'`),
    index("sessions_queue")
      .on(t.tenant, t.seq)
      .where(sql`${t.status} = 'queued'`),
    index("sessions_holder")
      .on(t.agentId)
      .where(sql`${t.status} IN ('starting', 'ready')`),
    index("sessions_ended_at")
      .on(t.endedAt)
      .where(sql`${t.status} = 'ended'`),
    check("session_status_known", sql`${t.status} IN (${inList(sessionStatuses)})`),
    check(
      "session_reason_when_ended",
      sql`(${t.status} = 'ended') = (coalesce(${t.reason}, '') IN (${inList(endReasons)}))`,
    ),
    check("session_ended", sql`(${t.status} = 'ended') = (${t.endedAt} IS NOT NULL)`),
    check("session_env_until_end", sql`(${t.status} = 'ended') = (${t.env} IS NULL)`),
    check(
      "session_lease_while_held",
      sql`(${t.status} IN ('starting', 'ready')) = (${t.leaseExpiresAt} IS NOT NULL)`,
    ),
    check(
      "session_lease_complete",
      sql`${t.leaseExpiresAt} IS NULL OR (${t.leaseId} IS NOT NULL AND ${t.agentId} IS NOT NULL AND ${t.startedAt} IS NOT NULL)`,
    ),
    check("session_ready", sql`${t.status} <> 'ready' OR ${t.readyAt} IS NOT NULL`),
  ],
);

/** Conditions of the partial indexes, as literal text: see isQueued in executions.ts. */
export const isOpenSession = sql`${sessions.status} <> 'ended'`;
export const isQueuedSession = sql`${sessions.status} = 'queued'`;
export const isHeldSession = sql`${sessions.status} IN ('starting', 'ready')`;
