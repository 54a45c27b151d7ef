import { sql } from "drizzle-orm";
import type { Database } from "../database.ts";
import { executions, tenants } from "../schema.ts";
import { statement } from "../statement.ts";

/** Picks the job types whose latest execution was submitted at or after a time. */
export async function jobTypesUsedSince(
  db: Database,
  jobTypes: string[],
  since: number,
): Promise<string[]> {
  const { rows } = await db.client.execute(used({ jobTypes: JSON.stringify(jobTypes), since }));
  return rows.map((row) => row[0] as string);
}

// Of each tenant, because its index begins with the tenant.
const used = statement(sql`
  select wanted.value from json_each(${sql.placeholder("jobTypes")}) as wanted
  where exists (select 1 from ${tenants} as each cross join ${executions} as latest
    where latest.seq = (select max(${executions.seq}) from ${executions}
        where ${executions.tenant} = each.name and ${executions.jobType} = wanted.value)
      and latest.created_at >= ${sql.placeholder("since")})`);
