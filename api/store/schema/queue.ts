import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";

/**
 * Number of queued executions, in one row. Triggers update it at every change of a status, so that
 * submissions and /health do not count a long queue.
 */
export const queueLength = sqliteTable("queue_length", {
  id: integer("id").primaryKey(),
  queued: integer("queued").notNull(),
});

/** The last turn that the queue of a job type has reached: see store/jobs/line.ts. */
export const queueFronts = sqliteTable("queue_fronts", {
  jobType: text("job_type").primaryKey(),
  turn: integer("turn").notNull(),
});
