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
import type { ExecutionError } from "../../shared/wire/errors.ts";
import {
  type Compilation,
  containerBackends,
  executionStatuses,
  type LostOutcome,
  relationships,
  type Timing,
} from "../../shared/wire/executions.ts";
import { inputWays } from "../../shared/wire/files.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ProgramChoice, ToolChoice } from "../jobs/environment.ts";

/** Drivers return an ArrayBuffer, Uint8Array or Buffer; the API uses Uint8Array only. */
export const bytes = customType<{ data: Uint8Array; driverData: ArrayBuffer | Uint8Array }>({
  dataType: () => "blob",
  fromDriver: (value) => new Uint8Array(value),
});

export const inList = (values: readonly string[]) =>
  sql.raw(values.map((v) => `'${v}'`).join(", "));

/** Name of the tenant that owns a record. */
export const tenant = () => text("tenant").notNull().default("default");

/** A lease that ended without a result. Times are epoch milliseconds. */
export interface LostAttempt {
  attempt: number;
  agentId: string;
  /** Name of the agent. */
  agent: string | null;
  claimedAt: number;
  codeStartedAt: number | null;
  endedAt: number;
  outcome: LostOutcome;
  /** Why the agent released it. */
  error: ExecutionError | null;
}

/** One row per execution; its large values are in `payloads`. Times are epoch milliseconds. */
export const executions = sqliteTable(
  "executions",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    id: text("id").notNull().unique(),
    tenant: tenant(),
    /** A synchronous execution ends with its request and never enters the dead letter queue. */
    mode: text("mode", { enum: ["sync", "async"] }).notNull(),
    status: text("status", { enum: executionStatuses }).notNull().default("queued"),
    jobType: text("job_type").notNull(),
    jobVersion: text("job_version").notNull().default("latest"),
    jobRef: text("job_ref"),
    containerRuntime: text("container_runtime"),
    containerBackend: text("container_backend", { enum: containerBackends }),
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
    /** SHA-256 of the result post that ended the execution, to recognise a repeat. */
    resultHash: text("result_hash"),

    codeHash: text("code_hash").notNull(),
    inputHash: text("input_hash").notNull(),
    codeBytes: integer("code_bytes").notNull(),
    inputBytes: integer("input_bytes").notNull(),
    /** What `tenants.stored_bytes` counts of it: code, input, stdin, args, files, metadata and requirements of the request; streams and output. */
    submittedBytes: integer("submitted_bytes").notNull().default(0),
    outputBytes: integer("output_bytes").notNull().default(0),
    parentExecutionId: text("parent_execution_id"),
    relationship: text("relationship", { enum: relationships }),
    idempotencyKey: text("idempotency_key"),
    /** SHA-256 of the whole submission, to recognise an equal payload. */
    submissionHash: text("submission_hash").notNull(),
    correlationId: text("correlation_id").notNull(),
    clientIp: text("client_ip").notNull(),
    /** Stands for the API key that submitted it; null if keys are not required. */
    keyId: text("key_id"),
    /** Its turn and its rank in the queue: see api/jobs/sql.ts. */
    turn: integer("turn").notNull().default(0),
    rank: integer("rank").notNull().default(0),

    metadata: text("metadata", { mode: "json" }).$type<Record<string, string>>(),
    batchId: text("batch_id"),
    /** Leases that it may use up. */
    maxAttempts: integer("max_attempts").notNull().default(limits.maxAttempts),
    /** When the client wants it to start; `availableAt` moves on with each retry. */
    runAt: integer("run_at"),
    /** If it has not been leased by then, it ends. */
    startBy: integer("start_by"),
    traceparent: text("traceparent"),
    /** What its agent must know for its stdin, args and files; null if it has none. */
    inputs: text("inputs", { enum: inputWays }),
    /** The submission's own receiver of the webhook. */
    callbackUrl: text("callback_url"),
    /** The time until which somebody counts as following its events. */
    followedUntil: integer("followed_until"),
    /** Null until a lease ends without a result: see api/jobs/lease.ts. */
    lostAttempts: text("lost_attempts", { mode: "json" }).$type<LostAttempt[]>(),
    /** What it shows is kept: all of it, or not all. Null: its code runs as a script. */
    results: text("results", { enum: ["all", "truncated"] }),
    /** Set of calls: the session, the number among its calls, and the context. */
    sessionId: text("session_id"),
    call: integer("call"),
    context: text("context"),
    /** files: a call that reads or writes files of its session, which lists leave out. Null: any other execution. */
    kind: text("kind", { enum: ["files"] }),
    /** Null if there are none. */
    warnings: text("warnings", { mode: "json" }).$type<string[]>(),
  },
  (t) => [
    uniqueIndex("executions_idempotency_key")
      .on(t.tenant, t.idempotencyKey)
      .where(sql`${t.idempotencyKey} IS NOT NULL`),
    // Before those of parents and batches: of equally good indexes SQLite uses the newest.
    index("executions_tenant").on(t.tenant, t.seq),
    index("executions_parent")
      .on(t.parentExecutionId, t.seq)
      .where(sql`${t.parentExecutionId} IS NOT NULL`),
    index("executions_batch")
      .on(t.batchId, t.seq)
      .where(sql`${t.batchId} IS NOT NULL`),
    index("executions_session")
      .on(t.sessionId, t.seq)
      .where(sql`${t.sessionId} IS NOT NULL`),
    index("executions_waiting_call")
      .on(t.sessionId, t.seq)
      .where(sql`${t.status} = 'queued' AND ${t.sessionId} IS NOT NULL`),
    // The calls of a session run one at a time.
    uniqueIndex("executions_running_call")
      .on(t.sessionId)
      .where(sql`${t.status} = 'running' AND ${t.sessionId} IS NOT NULL`),
    index("executions_start_by")
      .on(t.startBy)
      .where(sql`${t.status} = 'queued' AND ${t.startBy} IS NOT NULL`),
    index("executions_position")
      .on(t.tenant, t.rank, t.seq)
      .where(sql`${t.status} = 'queued' AND ${t.sessionId} IS NULL`),
    index("executions_turn")
      .on(t.tenant, t.turn)
      .where(sql`${t.status} = 'queued' AND ${t.sessionId} IS NULL`),
    uniqueIndex("executions_lease")
      .on(t.leaseId)
      .where(sql`${t.leaseId} IS NOT NULL`),
    index("executions_expiry")
      .on(t.leaseExpiresAt)
      .where(sql`${t.status} = 'running'`),
    index("executions_holder")
      .on(t.agentId, t.sessionId)
      .where(sql`${t.status} = 'running'`),
    // Few run, so a list finds them by their agents.
    index("executions_status")
      .on(t.tenant, t.status, t.seq)
      .where(sql`${t.status} <> 'running'`),
    index("executions_job_type").on(t.tenant, t.jobType, t.seq),
    index("executions_job_type_status")
      .on(t.tenant, t.jobType, t.status, t.seq)
      .where(sql`${t.status} <> 'running'`),
    index("executions_files")
      .on(t.tenant, t.seq)
      .where(sql`${t.kind} = 'files'`),
    index("executions_oldest")
      .on(t.createdAt)
      .where(sql`${t.status} = 'queued' AND ${t.sessionId} IS NULL AND ${t.runAt} IS NULL`),
    // Must be last: of equally good indexes SQLite uses the newest, and a claim needs this one. So a migration that adds
    // an index drops this one and makes it again.
    index("executions_rank")
      .on(t.jobType, t.rank, t.seq)
      .where(sql`${t.status} = 'queued' AND ${t.sessionId} IS NULL`),
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
    check(
      "call_complete",
      sql`(${t.sessionId} IS NULL) = (${t.call} IS NULL) AND (${t.sessionId} IS NULL) = (${t.context} IS NULL)`,
    ),
    check("lineage_complete", sql`(${t.parentExecutionId} IS NULL) = (${t.relationship} IS NULL)`),
  ],
);

/**
 * Conditions of the partial indexes, as literal text without parameters: SQLite uses a partial index
 * only if the query has its condition.
 */
export const isQueued = sql`${executions.status} = 'queued'`;
/** A job in the queue. Calls wait for their session, not in the queue. */
export const isInLine = sql`${executions.status} = 'queued' AND ${executions.sessionId} IS NULL`;
export const isWaitingCall = sql`${executions.status} = 'queued' AND ${executions.sessionId} IS NOT NULL`;
export const isRunningCall = sql`${executions.status} = 'running' AND ${executions.sessionId} IS NOT NULL`;
export const isRunning = sql`${executions.status} = 'running'`;
export const isNotRunning = sql`${executions.status} <> 'running'`;
export const isOfFiles = sql`${executions.kind} = 'files'`;
export const isEnded = sql`${executions.status} NOT IN ('queued', 'running')`;

const ofExecution = () =>
  text("execution_id")
    .notNull()
    .references(() => executions.id, { onDelete: "cascade" });

/** The metadata of executions by key and value, for the filters of lists. Triggers keep it. */
export const executionMetadata = sqliteTable(
  "execution_metadata",
  {
    tenant: tenant(),
    key: text("key").notNull(),
    value: text("value").notNull(),
    seq: integer("seq").notNull(),
  },
  (t) => [primaryKey({ columns: [t.tenant, t.key, t.value, t.seq] })],
);

/**
 * Output of an attempt while it runs, in the order in which the code wrote it. Each row begins where the
 * row before it ends; rows go when a result brings all output. See api/jobs/output.ts.
 */
export const outputChunks = sqliteTable(
  "output_chunks",
  {
    executionId: ofExecution(),
    attempt: integer("attempt").notNull(),
    /** Bytes of both streams before this row. */
    position: integer("position").notNull(),
    /** Bytes of each stream before this row. */
    stdoutOffset: integer("stdout_offset").notNull(),
    stderrOffset: integer("stderr_offset").notNull(),
    /** Lengths of the parts of `data`, in their order: positive for stdout, negative for stderr. */
    runs: text("runs", { mode: "json" }).$type<number[]>().notNull(),
    /** Epoch ms of its arrival. */
    at: integer("at").notNull(),
    data: bytes("data").notNull(),
  },
  (t) => [primaryKey({ columns: [t.executionId, t.attempt, t.position] })],
);

/** What the code of an attempt showed, and its calls of the caller's functions, as its agent posted them. */
export const runItems = sqliteTable(
  "run_items",
  {
    executionId: ofExecution(),
    attempt: integer("attempt").notNull(),
    number: integer("number").notNull(),
    kind: text("kind", { enum: ["display", "tool_call"] }).notNull(),
    /** Of what was shown: whether it is the value of the last expression. */
    main: integer("main", { mode: "boolean" }).notNull(),
    /** JSON: forms of the value by MIME type, or name and arguments of the call. */
    data: text("data").notNull(),
    /** Bytes of each stream before it. */
    stdoutAt: integer("stdout_at").notNull(),
    stderrAt: integer("stderr_at").notNull(),
    /** Epoch ms of its arrival. */
    at: integer("at").notNull(),
    /** The answer to a call: its place among the answers of the attempt, from 1; JSON, or the text of an error. */
    answered: integer("answered"),
    answer: text("answer"),
    isError: integer("is_error", { mode: "boolean" }),
  },
  (t) => [primaryKey({ columns: [t.executionId, t.attempt, t.number] })],
);

/** An uploaded file. It becomes visible when the result of its lease is accepted. */
export const artifacts = sqliteTable(
  "artifacts",
  {
    executionId: ofExecution(),
    leaseId: text("lease_id").notNull(),
    name: text("name").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    sha256: text("sha256").notNull(),
    contentType: text("content_type").notNull(),
  },
  (t) => [primaryKey({ columns: [t.executionId, t.leaseId, t.name] })],
);

/** What a call asks for beside its code. `env` goes when it has ended: values may be secrets. */
export interface CallOptions {
  restart?: boolean;
  env?: Record<string, string>;
  fetch?: string[];
}

/**
 * Input and output of an execution. Stored as bytes, because TEXT is cut at NUL when it is read. SQLite walks past all
 * columns before the one that it reads, so small columns come first, and those that are read in pieces come before those
 * that are read once.
 */
export const payloads = sqliteTable("payloads", {
  executionId: text("execution_id")
    .primaryKey()
    .references(() => executions.id, { onDelete: "cascade" }),
  args: text("args", { mode: "json" }).$type<string[]>(),
  /** What runs in place of Python; null for Python. */
  program: text("program", { mode: "json" }).$type<ProgramChoice>(),
  /** The caller's functions that the code can call; null if there are none. */
  tools: text("tools", { mode: "json" }).$type<ToolChoice>(),
  /** What calls have besides. */
  call: text("call", { mode: "json" }).$type<CallOptions>(),
  /** Null if no compiler ran. */
  compile: text("compile", { mode: "json" }).$type<Compilation>(),
  stdout: bytes("stdout"),
  stderr: bytes("stderr"),
  output: bytes("output"),
  stdin: bytes("stdin"),
  code: bytes("code").notNull(),
  input: bytes("input").notNull(),
});

/** Files that clients have uploaded. Times are epoch milliseconds. */
export const files = sqliteTable(
  "files",
  {
    id: text("id").primaryKey(),
    tenant: tenant(),
    name: text("name").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    sha256: text("sha256").notNull(),
    contentType: text("content_type").notNull(),
    createdAt: integer("created_at").notNull(),
    /** When it expires. It is then removed, unless an execution refers to it. */
    expiresAt: integer("expires_at").notNull(),
    /** The upload's idempotency key, if it has one. */
    uploadKey: text("upload_key"),
  },
  (t) => [
    index("files_tenant").on(t.tenant, t.id),
    index("files_expires_at").on(t.expiresAt),
    uniqueIndex("files_upload_key")
      .on(t.tenant, t.uploadKey)
      .where(sql`${t.uploadKey} IS NOT NULL`),
  ],
);

/**
 * One row, which triggers update: bytes of uploaded files that are stored, being stored or due for
 * removal.
 */
export const fileBytes = sqliteTable("file_bytes", {
  id: integer("id").primaryKey(),
  total: integer("total").notNull(),
});

/** The files of a submission, which its code finds under /input. */
export const inputFiles = sqliteTable(
  "input_files",
  {
    executionId: ofExecution(),
    name: text("name").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    sha256: text("sha256").notNull(),
    contentType: text("content_type").notNull(),
    /** Its bytes, if they came in the request; else they are stored under `storeKey`. */
    content: bytes("content"),
    storeKey: text("store_key"),
    /** Id of the uploaded file or execution that owns the bytes: the first part of `storeKey`. */
    owner: text("owner"),
    /** Of calls: it goes to /output, where the code may change it. */
    toWork: integer("to_work", { mode: "boolean" }).notNull().default(false),
  },
  (t) => [
    primaryKey({ columns: [t.executionId, t.name] }),
    index("input_files_owner")
      .on(t.owner)
      .where(sql`${t.owner} IS NOT NULL`),
    check("bytes_once", sql`(${t.content} IS NULL) <> (${t.storeKey} IS NULL)`),
    check("owner_of_stored", sql`(${t.owner} IS NULL) = (${t.storeKey} IS NULL)`),
  ],
);

/** One row per batch of submissions. Its members name it in `executions.batch_id`. */
export const batches = sqliteTable(
  "batches",
  {
    id: text("id").primaryKey(),
    tenant: tenant(),
    keyId: text("key_id"),
    idempotencyKey: text("idempotency_key"),
    submissionHash: text("submission_hash").notNull(),
    /** The answer to its submission, for a repeat. */
    outcome: bytes("outcome").notNull(),
    /** Epoch ms. */
    createdAt: integer("created_at").notNull(),
  },
  (t) => [
    uniqueIndex("batches_idempotency_key")
      .on(t.tenant, t.idempotencyKey)
      .where(sql`${t.idempotencyKey} IS NOT NULL`),
    index("batches_created_at").on(t.createdAt),
  ],
);

/** A trigger on the transition fills it, so that no code path can forget it or do it twice. */
export const deadLetters = sqliteTable(
  "dead_letters",
  {
    id: integer("id").primaryKey({ autoIncrement: true }),
    tenant: tenant(),
    executionId: ofExecution().unique(),
    /** Type of its execution's error. */
    errorType: text("error_type").notNull(),
    createdAt: integer("created_at").notNull(),
  },
  (t) => [
    index("dead_letters_tenant").on(t.tenant, t.id),
    index("dead_letters_error_type").on(t.tenant, t.errorType, t.id),
    index("dead_letters_created_at").on(t.createdAt),
  ],
);

/** Counts of events by name. Triggers update them, so that no query counts the history. */
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

/** Durations of ended executions by phase: number in each bucket, above the previous bound and up to its own. */
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

/** State of the service once a minute, for two days. */
export const minutes = sqliteTable("minutes", {
  /** Epoch ms of the minute's start. */
  at: integer("at").primaryKey(),
  pending: integer("pending").notNull(),
  running: integer("running").notNull(),
  /** Executions that the live agents could run at once. */
  slots: integer("slots").notNull(),
  /** Executions that had ended until then, by status, as in `counts`. */
  ended: text("ended", { mode: "json" }).$type<Record<string, number>>().notNull(),
});

/**
 * Stored bytes to remove: of removed records and of lost leases. A row is written in the transaction of
 * the change, so that a crash leaves no unknown bytes behind.
 */
export const removals = sqliteTable(
  "removals",
  {
    /** `<execution id>` or `<execution id>/<lease id>`. */
    prefix: text("prefix").primaryKey(),
    tenant: tenant(),
    /** Epoch ms; late enough for every upload or backup that began before the change to have ended. */
    dueAt: integer("due_at").notNull(),
    /** Bytes of an uploaded file, and of the artifacts of a removed record: they count until they are gone. */
    fileBytes: integer("file_bytes").notNull().default(0),
    artifactBytes: integer("artifact_bytes").notNull().default(0),
  },
  (t) => [index("removals_due").on(t.dueAt)],
);

/** Idempotency keys of executions that a client removed: they are not given away again. */
export const tombstones = sqliteTable(
  "tombstones",
  {
    tenant: tenant(),
    idempotencyKey: text("idempotency_key").notNull(),
    executionId: text("execution_id").notNull(),
    /** Epoch ms. */
    removedAt: integer("removed_at").notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.tenant, t.idempotencyKey] }),
    index("tombstones_removed_at").on(t.removedAt),
  ],
);

/**
 * Number of queued executions, in one row. Triggers update it at every change of a status, so that
 * submissions and /health do not count a long queue.
 */
export const queueLength = sqliteTable("queue_length", {
  id: integer("id").primaryKey(),
  queued: integer("queued").notNull(),
});

/** The last turn that the queue of a job type has reached: see api/jobs/sql.ts. */
export const queueFronts = sqliteTable("queue_fronts", {
  jobType: text("job_type").primaryKey(),
  turn: integer("turn").notNull(),
});
