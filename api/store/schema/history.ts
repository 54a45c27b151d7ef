import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { executions } from "./executions.ts";

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
    errorType: text("error_type").notNull(),
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
