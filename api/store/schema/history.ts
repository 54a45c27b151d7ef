import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenant } from "./columns.ts";
import { executions } from "./executions.ts";

/** A trigger on the transition fills it, so that no code path can forget it or do it twice. */
export const deadLetters = sqliteTable(
  "dead_letters",
  {
    id: integer("id").primaryKey({ autoIncrement: true }),
    tenant: tenant(),
    executionId: text("execution_id")
      .notNull()
      .unique()
      .references(() => executions.id, { onDelete: "cascade" }),
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
