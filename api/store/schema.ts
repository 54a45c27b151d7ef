import { sql } from "drizzle-orm";
import {
  check,
  customType,
  index,
  integer,
  primaryKey,
  real,
  sqliteTable,
  text,
  uniqueIndex,
} from "drizzle-orm/sqlite-core";
import { buildStatuses } from "../../shared/build.ts";
import type { ExecutionError } from "../../shared/errors.ts";
import { executionStatuses, relationships, type Timing } from "../../shared/execution.ts";
import type { CircuitBreaker, EngineHealth, PoolKind } from "../../shared/health.ts";
import type { Accepted } from "../../shared/lease.ts";

/** Drivers give an ArrayBuffer, Uint8Array or Buffer; the core sees Uint8Array only. */
const bytes = customType<{ data: Uint8Array; driverData: ArrayBuffer | Uint8Array }>({
  dataType: () => "blob",
  fromDriver: (value) => new Uint8Array(value),
});

const inList = (values: readonly string[]) => sql.raw(values.map((v) => `'${v}'`).join(", "));

/** One row per execution; its bulky parts live in `payloads`. Times are epoch milliseconds. */
export const executions = sqliteTable(
  "executions",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    id: text("id").notNull().unique(),
    /** A synchronous execution ends with its request and never enters the dead letter queue. */
    mode: text("mode", { enum: ["sync", "async"] }).notNull(),
    status: text("status", { enum: executionStatuses }).notNull().default("queued"),
    jobType: text("job_type").notNull(),
    jobVersion: text("job_version").notNull().default("latest"),
    jobRef: text("job_ref"),
    containerRuntime: text("container_runtime"),
    timeoutS: integer("timeout_s").notNull(),
    startupTimeoutS: integer("startup_timeout_s").notNull(),
    requirements: text("requirements", { mode: "json" }).$type<string[]>().notNull(),

    attempt: integer("attempt").notNull().default(0),
    leaseId: text("lease_id"),
    agentId: text("agent_id"),
    leaseExpiresAt: integer("lease_expires_at"),
    availableAt: integer("available_at").notNull(),
    cancelRequested: integer("cancel_requested", { mode: "boolean" }).notNull().default(false),

    createdAt: integer("created_at").notNull(),
    startedAt: integer("started_at"),
    codeStartedAt: integer("code_started_at"),
    endedAt: integer("ended_at"),

    exitCode: integer("exit_code"),
    error: text("error", { mode: "json" }).$type<ExecutionError>(),
    timing: text("timing", { mode: "json" }).$type<Timing>(),
    maxRssMb: real("max_rss_mb"),
    cpuTimeMs: integer("cpu_time_ms"),
    wallTimeMs: integer("wall_time_ms"),
    stdoutTruncated: integer("stdout_truncated", { mode: "boolean" }).notNull().default(false),
    stderrTruncated: integer("stderr_truncated", { mode: "boolean" }).notNull().default(false),
    /** SHA-256 of the result post that ended the execution: tells a repeat from another body. */
    resultHash: text("result_hash"),

    codeHash: text("code_hash").notNull(),
    inputHash: text("input_hash").notNull(),
    codeBytes: integer("code_bytes").notNull(),
    inputBytes: integer("input_bytes").notNull(),
    parentExecutionId: text("parent_execution_id"),
    relationship: text("relationship", { enum: relationships }),
    idempotencyKey: text("idempotency_key"),
    /** SHA-256 of the whole submission: tells an equal payload from another one. */
    submissionHash: text("submission_hash").notNull(),
    correlationId: text("correlation_id").notNull(),
    clientIp: text("client_ip").notNull(),
    /** Stands for the API key that submitted it; null where none is asked for. */
    keyId: text("key_id"),
  },
  (t) => [
    uniqueIndex("executions_idempotency_key")
      .on(t.idempotencyKey)
      .where(sql`${t.idempotencyKey} IS NOT NULL`),
    index("executions_queue")
      .on(t.seq)
      .where(sql`${t.status} = 'queued'`),
    uniqueIndex("executions_lease")
      .on(t.leaseId)
      .where(sql`${t.leaseId} IS NOT NULL`),
    index("executions_expiry")
      .on(t.leaseExpiresAt)
      .where(sql`${t.status} = 'running'`),
    index("executions_holder")
      .on(t.agentId)
      .where(sql`${t.status} = 'running'`),
    index("executions_status")
      .on(t.status, t.seq)
      .where(sql`${t.status} NOT IN ('queued', 'running')`),
    index("executions_job_type").on(t.jobType, t.seq),
    index("executions_job_type_status")
      .on(t.jobType, t.status, t.seq)
      .where(sql`${t.status} NOT IN ('queued', 'running')`),
    check("status_known", sql`${t.status} IN (${inList(executionStatuses)})`),
    check("mode_known", sql`${t.mode} IN ('sync', 'async')`),
    check(
      "lease_while_running",
      sql`(${t.status} = 'running') = (${t.leaseExpiresAt} IS NOT NULL)`,
    ),
    check(
      "lease_complete",
      sql`${t.leaseExpiresAt} IS NULL OR (${t.leaseId} IS NOT NULL AND ${t.agentId} IS NOT NULL AND ${t.startedAt} IS NOT NULL)`,
    ),
    check(
      "ended_when_terminal",
      sql`(${t.status} IN ('queued', 'running')) = (${t.endedAt} IS NULL)`,
    ),
    check(
      "error_unless_succeeded",
      sql`(${t.error} IS NOT NULL) = (${t.status} IN ('failed', 'timeout', 'oom', 'cancelled'))`,
    ),
    check("no_exit_code_on_timeout", sql`${t.status} <> 'timeout' OR ${t.exitCode} IS NULL`),
    check("attempt_not_negative", sql`${t.attempt} >= 0`),
    check("lineage_complete", sql`(${t.parentExecutionId} IS NULL) = (${t.relationship} IS NULL)`),
  ],
);

/**
 * Conditions of the partial indexes. They are written out, not bound to a parameter: SQLite uses
 * such an index only where it sees its condition in the query.
 */
export const isQueued = sql`${executions.status} = 'queued'`;
export const isRunning = sql`${executions.status} = 'running'`;
export const isEnded = sql`${executions.status} NOT IN ('queued', 'running')`;

/**
 * How many executions are queued, in one row. Triggers on every change of a status keep it, so that
 * neither a submission nor /health counts a long queue.
 */
export const queueLength = sqliteTable("queue_length", {
  id: integer("id").primaryKey(),
  queued: integer("queued").notNull(),
});

/** What an execution took in and gave out. Bytes, since TEXT is cut at NUL on reading. */
export const payloads = sqliteTable("payloads", {
  executionId: text("execution_id")
    .primaryKey()
    .references(() => executions.id, { onDelete: "cascade" }),
  code: bytes("code").notNull(),
  input: bytes("input").notNull(),
  stdout: bytes("stdout"),
  stderr: bytes("stderr"),
  output: bytes("output"),
});

/** Output of an attempt still running; read only when the attempt never brought a result. */
export const logChunks = sqliteTable(
  "log_chunks",
  {
    executionId: text("execution_id")
      .notNull()
      .references(() => executions.id, { onDelete: "cascade" }),
    leaseId: text("lease_id").notNull(),
    stream: text("stream", { enum: ["stdout", "stderr"] }).notNull(),
    offset: integer("offset").notNull(),
    data: bytes("data").notNull(),
  },
  (t) => [primaryKey({ columns: [t.executionId, t.leaseId, t.stream, t.offset] })],
);

/** An uploaded file; visible once the result of the lease that brought it is accepted. */
export const artifacts = sqliteTable(
  "artifacts",
  {
    executionId: text("execution_id")
      .notNull()
      .references(() => executions.id, { onDelete: "cascade" }),
    leaseId: text("lease_id").notNull(),
    name: text("name").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    sha256: text("sha256").notNull(),
    contentType: text("content_type").notNull(),
  },
  (t) => [primaryKey({ columns: [t.executionId, t.leaseId, t.name] })],
);

/** Filled by a trigger on the transition itself, so that no path can forget it or do it twice. */
export const deadLetters = sqliteTable(
  "dead_letters",
  {
    id: integer("id").primaryKey({ autoIncrement: true }),
    executionId: text("execution_id")
      .notNull()
      .unique()
      .references(() => executions.id, { onDelete: "cascade" }),
    /** The type of its execution's error. */
    errorType: text("error_type").notNull().default(""),
    createdAt: integer("created_at").notNull(),
  },
  (t) => [
    index("dead_letters_error_type").on(t.errorType, t.id),
    index("dead_letters_created_at").on(t.createdAt),
  ],
);

/** What has happened so far, by name; kept by triggers, so that nobody has to count the history. */
export const counts = sqliteTable(
  "counts",
  {
    /** executions (ended), leases (lost), retries, dead_letters. */
    name: text("name").notNull(),
    jobType: text("job_type").notNull(),
    /** The status of executions, the reason of leases; else empty. */
    label: text("label").notNull(),
    n: integer("n").notNull(),
  },
  (t) => [primaryKey({ columns: [t.name, t.jobType, t.label] })],
);

/** How long ended executions took, by phase: how many fell under a bound and above the one before. */
export const durations = sqliteTable(
  "durations",
  {
    jobType: text("job_type").notNull(),
    /** queue, startup, dep_install, execution, total. */
    phase: text("phase").notNull(),
    leMs: integer("le_ms").notNull(),
    n: integer("n").notNull(),
    sumMs: integer("sum_ms").notNull(),
  },
  (t) => [primaryKey({ columns: [t.jobType, t.phase, t.leMs] })],
);

/**
 * Artifacts whose record is gone, and those of lost leases; put down with the change itself, so
 * that no crash leaves bytes behind that nobody knows of.
 */
export const removals = sqliteTable(
  "removals",
  {
    /** `<execution id>` or `<execution id>/<lease id>`. */
    prefix: text("prefix").primaryKey(),
    /** Epoch ms; by then no upload or backup that began before the change is still under way. */
    dueAt: integer("due_at").notNull(),
  },
  (t) => [index("removals_due").on(t.dueAt)],
);

/** One row per build of a job type's image. Times are epoch milliseconds. */
export const builds = sqliteTable(
  "builds",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    id: text("id").notNull().unique(),
    jobType: text("job_type").notNull(),
    /** The version tag, or "latest". */
    tag: text("tag").notNull(),
    /** What the image is made of, as canonical JSON: the build serves only a job type that asks for it. */
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

    digest: text("digest"),
    pythonVersion: text("python_version"),
    error: text("error", { mode: "json" }).$type<ExecutionError>(),
    /** SHA-256 of the report that ended the build: tells a repeat from another body. */
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

/** Output of a build, as it came in under each of its leases. */
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

/** Agent processes that have polled and not left. */
export const agents = sqliteTable("agents", {
  id: text("id").primaryKey(),
  name: text("name").notNull(),
  /** SHA-256 of the token that the agent presents. */
  tokenHash: text("token_hash").notNull(),
  version: text("version").notNull(),
  labels: text("labels", { mode: "json" }).$type<Record<string, string>>().notNull(),
  accepts: text("accepts", { mode: "json" })
    .$type<Accepted>()
    .notNull()
    .default({ job_types: null, builds: true }),
  slots: integer("slots").notNull(),
  warm: integer("warm").notNull(),
  pool: text("pool", { mode: "json" }).$type<PoolKind[]>().notNull().default([]),
  engine: text("engine", { mode: "json" }).$type<EngineHealth>().notNull(),
  breaker: text("breaker", { mode: "json" }).$type<CircuitBreaker>().notNull(),
  /** Of the images that jobs may need, those that its engine has. */
  images: text("images", { mode: "json" }).$type<string[]>().notNull().default([]),
  lastSeenAt: integer("last_seen_at").notNull(),
});
