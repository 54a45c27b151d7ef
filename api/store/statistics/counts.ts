import { and, isNull, min } from "drizzle-orm";
import type { Database } from "../database.ts";
import { counts, durations, executions, isInLine } from "../schema.ts";

/** Upper bounds of a phase's buckets; the trigger that fills them has the same numbers. */
export const phaseBoundsMs = [
  5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000,
  3_600_000,
];

/** Triggers update these counts at each change, so reading them does not get slower with a long history. */
export interface Counts {
  totals: (typeof counts.$inferSelect)[];
  durations: (typeof durations.$inferSelect)[];
  /** Epoch ms; null if nothing waits. A job with `run_at` does not count. */
  oldestQueuedAt: number | null;
}

export async function readCounts(db: Database): Promise<Counts> {
  const [totals, phases, oldest] = await Promise.all([
    db.orm.select().from(counts),
    db.orm.select().from(durations).orderBy(durations.jobType, durations.phase, durations.leMs),
    db.orm
      .select({ createdAt: min(executions.createdAt) })
      .from(executions)
      .where(and(isInLine, isNull(executions.runAt))),
  ]);
  return { totals, durations: phases, oldestQueuedAt: oldest[0]?.createdAt ?? null };
}
