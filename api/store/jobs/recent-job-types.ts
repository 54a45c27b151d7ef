import { desc, eq } from "drizzle-orm";
import type { Database } from "../database.ts";
import { executions } from "../schema.ts";

/** Picks the job types whose latest execution was submitted at or after a time. */
export async function jobTypesUsedSince(
  db: Database,
  jobTypes: string[],
  since: number,
): Promise<string[]> {
  const latest = await Promise.all(
    jobTypes.map((jobType) =>
      db.orm
        .select({ jobType: executions.jobType, createdAt: executions.createdAt })
        .from(executions)
        .where(eq(executions.jobType, jobType))
        .orderBy(desc(executions.seq))
        .limit(1),
    ),
  );
  return latest.flat().flatMap(({ jobType, createdAt }) => (createdAt >= since ? [jobType] : []));
}
