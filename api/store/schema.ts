import { sql } from "drizzle-orm";
import {
  check,
  index,
  integer,
  primaryKey,
  sqliteTable,
  text,
  uniqueIndex,
} from "drizzle-orm/sqlite-core";
import type { Scope } from "../../shared/wire/access.ts";
import { endReasons, type ExecutionError } from "../../shared/wire/errors.ts";
import { containerBackends } from "../../shared/wire/executions.ts";
import type { CircuitBreaker, EngineHealth, GpuCount, PoolKind } from "../../shared/wire/health.ts";
import { buildStatuses, type OwnJobType } from "../../shared/wire/job-types.ts";
import type { Accepted } from "../../shared/wire/leases.ts";
import { sessionStatuses } from "../../shared/wire/sessions.ts";
import { deliveryStatuses, type WebhookType } from "../../shared/wire/webhooks.ts";
import { bytes, inList, tenant } from "./job-tables.ts";

/** The tables that the migrations in api/store/migrations make. The triggers are only in the migrations. */
export * from "./job-tables.ts";

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

const dayMs = 86_400_000;

/** The number of a UTC day, as `tenants.cpu_day` has it. */
export const dayOf = (now: number): number => Math.floor(now / dayMs);

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

/** Agent processes that have polled. */
export const agents = sqliteTable("agents", {
  id: text("id").primaryKey(),
  name: text("name").notNull(),
  /** Its token: the SHA-256 of a configured token, or an id in `agentTokens`. */
  tokenHash: text("token_hash").notNull(),
  version: text("version").notNull(),
  labels: text("labels", { mode: "json" }).$type<Record<string, string>>().notNull(),
  accepts: text("accepts", { mode: "json" }).$type<Accepted>().notNull(),
  slots: integer("slots").notNull(),
  gpus: text("gpus", { mode: "json" }).$type<GpuCount>().notNull(),
  warm: integer("warm").notNull(),
  pool: text("pool", { mode: "json" }).$type<PoolKind[]>().notNull(),
  engine: text("engine", { mode: "json" }).$type<EngineHealth>().notNull(),
  breaker: text("breaker", { mode: "json" }).$type<CircuitBreaker>().notNull(),
  /** Sessions that it holds or has room for, as of its last poll. Null: it takes none. */
  maxSessions: integer("max_sessions"),
  /** Images that jobs may need and that its engine has. */
  images: text("images", { mode: "json" }).$type<string[]>().notNull(),
  lastSeenAt: integer("last_seen_at").notNull(),
  /** When an operator drained the agent: it takes no new jobs and builds since. */
  drainingAt: integer("draining_at"),
  /** When it left. A delayed request from before must not register it again. */
  leftAt: integer("left_at"),
});

/**
 * The order of the last change of each agent's row, which triggers keep. So a process reads only what has changed since
 * it looked. A row without an agent stands for all agents that were removed.
 */
export const agentChanges = sqliteTable("agent_changes", {
  seq: integer("seq").primaryKey({ autoIncrement: true }),
  /** Empty: an agent was removed. */
  agentId: text("agent_id").notNull().unique(),
});

/** Tokens of agents that joined. Each agent has its own, which can be revoked. Times are epoch milliseconds. */
export const agentTokens = sqliteTable("agent_tokens", {
  id: text("id").primaryKey(),
  /** Name that operators use for the host. */
  name: text("name").notNull(),
  /** SHA-256 (hex) of the token. Only its host has the token itself. */
  tokenHash: text("token_hash").notNull().unique(),
  /** SHA-256 of its successor, which replaces it when it is first used. */
  nextHash: text("next_hash").unique(),
  createdAt: integer("created_at").notNull(),
  lastUsedAt: integer("last_used_at"),
  revokedAt: integer("revoked_at"),
  /** When an operator asked the host to replace it; null if nobody did, or once it is replaced. */
  rotationAskedAt: integer("rotation_asked_at"),
});

/** One-time codes with which a host can join. */
export const joinCodes = sqliteTable("join_codes", {
  /** SHA-256 (hex) of the code. */
  codeHash: text("code_hash").primaryKey(),
  /** Name for the joining host; null if the host may choose. */
  name: text("name"),
  createdAt: integer("created_at").notNull(),
  expiresAt: integer("expires_at").notNull(),
  /** Token that it was exchanged for; null while it is unused. */
  tokenId: text("token_id").references(() => agentTokens.id),
});

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

/** Conditions of the partial indexes, as literal text: see isQueued in job-tables.ts. */
export const isOpenSession = sql`${sessions.status} <> 'ended'`;
export const isQueuedSession = sql`${sessions.status} = 'queued'`;
export const isHeldSession = sql`${sessions.status} IN ('starting', 'ready')`;

/** One row per build of a job type's image. Times are epoch milliseconds. */
export const builds = sqliteTable(
  "builds",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    id: text("id").notNull().unique(),
    jobType: text("job_type").notNull(),
    /** The version tag, or "latest". */
    tag: text("tag").notNull(),
    /** What the image is made of, as canonical JSON. The build is used only if the job type's specification is equal. */
    spec: text("spec").notNull(),
    imageRef: text("image_ref").notNull(),
    status: text("status", { enum: buildStatuses }).notNull().default("queued"),
    correlationId: text("correlation_id").notNull(),

    attempt: integer("attempt").notNull().default(0),
    leaseId: text("lease_id"),
    agentId: text("agent_id"),
    leaseExpiresAt: integer("lease_expires_at"),

    createdAt: integer("created_at").notNull(),
    startedAt: integer("started_at"),
    endedAt: integer("ended_at"),

    /** The step that runs, or ran last, from 1. */
    step: integer("step"),
    digest: text("digest"),
    pythonVersion: text("python_version"),
    /** SHA-256 and size of its archive in the artifact store; null if there is none. */
    archiveSha256: text("archive_sha256"),
    archiveBytes: integer("archive_bytes"),
    /** Digest (`sha256:…`) that a registry gave the image's manifest. */
    manifestDigest: text("manifest_digest"),
    error: text("error", { mode: "json" }).$type<ExecutionError>(),
    /** SHA-256 of the report that ended the build, to recognise a repeat. */
    reportHash: text("report_hash"),
  },
  (t) => [
    /** Equal requests share one build. */
    uniqueIndex("builds_open")
      .on(t.jobType, t.tag, t.spec)
      .where(sql`${t.status} IN ('queued', 'running')`),
    index("builds_queue")
      .on(t.seq)
      .where(sql`${t.status} IN ('queued', 'running')`),
    uniqueIndex("builds_lease")
      .on(t.leaseId)
      .where(sql`${t.leaseId} IS NOT NULL`),
    index("builds_built")
      .on(t.jobType, t.spec, t.seq)
      .where(sql`${t.status} = 'built'`),
    index("builds_archived")
      .on(t.seq)
      .where(sql`${t.archiveSha256} IS NOT NULL`),
    check("build_status_known", sql`${t.status} IN (${inList(buildStatuses)})`),
    check(
      "build_lease_while_running",
      sql`(${t.status} = 'running') = (${t.leaseExpiresAt} IS NOT NULL)`,
    ),
    check(
      "build_lease_complete",
      sql`${t.leaseExpiresAt} IS NULL OR (${t.leaseId} IS NOT NULL AND ${t.agentId} IS NOT NULL AND ${t.startedAt} IS NOT NULL)`,
    ),
    check("build_ended", sql`(${t.status} IN ('built', 'failed')) = (${t.endedAt} IS NOT NULL)`),
    check("build_error_when_failed", sql`(${t.status} = 'failed') = (${t.error} IS NOT NULL)`),
    check(
      "build_digest_when_built",
      sql`(${t.status} = 'built') = (${t.digest} IS NOT NULL) AND (${t.status} = 'built') = (${t.pythonVersion} IS NOT NULL)`,
    ),
  ],
);

/** Job types that tenants have made. The name begins with the tenant's and a dot. */
export const jobTypes = sqliteTable(
  "job_types",
  {
    name: text("name").primaryKey(),
    tenant: tenant(),
    definition: text("definition", { mode: "json" }).$type<OwnJobType>().notNull(),
    /** Epoch ms. */
    changedAt: integer("changed_at").notNull(),
  },
  (t) => [index("job_types_tenant").on(t.tenant, t.name)],
);

/** Output of a build, by lease. */
export const buildLogs = sqliteTable(
  "build_logs",
  {
    buildId: text("build_id")
      .notNull()
      .references(() => builds.id, { onDelete: "cascade" }),
    leaseId: text("lease_id").notNull(),
    offset: integer("offset").notNull(),
    data: bytes("data").notNull(),
  },
  (t) => [primaryKey({ columns: [t.buildId, t.leaseId, t.offset] })],
);

/**
 * Events for receivers and listeners. A trigger on the transition (0006_end_triggers.sql) writes them,
 * so that no way to end an execution is forgotten. Times are epoch milliseconds.
 */
export const webhookEvents = sqliteTable(
  "webhook_events",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    tenant: tenant(),
    executionId: text("execution_id").notNull().unique(),
    type: text("type").$type<WebhookType>().notNull(),
    /** JSON of api/webhooks/rules.ts. It outlives the execution's record. */
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
    /** Name of a configured endpoint, or a group of a tenant's callbacks: calls to one receiver are bounded. */
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

/** Requests of each client in its current window; used if several processes or isolates serve requests. */
export const rateWindows = sqliteTable(
  "rate_windows",
  {
    /** Hash of the API key, else the client's address. */
    client: text("client").primaryKey(),
    hits: integer("hits").notNull(),
    /** Epoch ms. */
    endsAt: integer("ends_at").notNull(),
  },
  (t) => [index("rate_windows_end").on(t.endsAt)],
);

/** Values of this database: which events are stored for webhooks. */
export const settings = sqliteTable("settings", {
  name: text("name").primaryKey(),
  value: text("value").notNull(),
});
