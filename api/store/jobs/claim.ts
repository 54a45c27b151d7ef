import { and, getTableColumns, inArray, lte, sql, type SQL } from "drizzle-orm";
import type { ExecutionRow } from "./advance.ts";
import type { Database } from "../database.ts";
import { randomUuid, type LeaseTerms } from "./lease.ts";
import { executions, isQueued } from "../schema.ts";
import { listed, query, rowsQuery } from "../statement.ts";

/** A job type whose jobs may be leased, and what their records say they run on. */
export interface Offer {
  jobType: string;
  jobVersion: string;
  /** Null where the agent will tell. */
  jobRef: string | null;
  /** GPUs that each of its jobs takes. */
  gpus: number;
}

/** What an agent has room for. */
export interface Room {
  slots: number;
  gpus: number;
}

/**
 * Leases queued executions of the offered job types, as many as there is room for, by their places
 * in the queue, and pins what they run on, in one guarded statement. One that needs more GPUs than
 * are free keeps those that are free from all behind it, so that it does get enough of them.
 */
export async function claimNext(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  { slots, gpus }: Room,
  offers: Offer[],
): Promise<ExecutionRow[]> {
  const jobTypes = JSON.stringify(offers.map(({ jobType }) => jobType));
  if (offers.length === 0 || (await firstDue(db, { now, jobTypes })).length === 0) return [];
  const values = { agentId, expiresAt, now, slots, gpus, offers: JSON.stringify(offers) };
  const claimed = await claim(db, values);
  return claimed.sort((a, b) => a.place - b.place || a.seq - b.seq);
}

const { seq, place, jobType, availableAt } = executions;
const given = sql.placeholder;
const isDue = and(isQueued, lte(availableAt, given("now")));

/** Whether any job waits: a read, where a claim would take the writers' lock. */
const firstDue = rowsQuery(
  { seq },
  query
    .select({ seq })
    .from(executions)
    .where(and(isDue, sql`${jobType} in ${listed("jobTypes")}`))
    .limit(1),
);

/** What an offer says for the job type of a row. */
const offered = (what: keyof Offer): SQL =>
  sql`(select value ->> ${sql.raw(`'${what}'`)} from json_each(${given("offers")}) where value ->> 'jobType' = ${jobType})`;

/** The first of each job type in the queue, and so surely the first of all. */
const heads = sql`select ${seq} as seq, ${place} as place, offer.value ->> 'gpus' as gpus
  from json_each(${given("offers")}) as offer cross join ${executions}
  where ${seq} in (
    select waiting.seq from ${executions} as waiting
    where waiting.status = 'queued' and waiting.job_type = offer.value ->> 'jobType'
      and waiting.available_at <= ${given("now")}
    order by waiting.place, waiting.seq limit ${given("slots")})`;

const next = sql`(select seq from (
    select seq, place, gpus, sum(gpus) over (order by place, seq) as taken from (${heads}))
  where gpus = 0 or taken <= ${given("gpus")}
  order by place, seq limit ${given("slots")})`;

const claim = rowsQuery(
  getTableColumns(executions),
  query
    .update(executions)
    .set({
      status: "running",
      attempt: sql`${executions.attempt} + 1`,
      leaseId: randomUuid,
      agentId: sql`${given("agentId")}`,
      leaseExpiresAt: sql`${given("expiresAt")}`,
      startedAt: sql`${given("now")}`,
      jobVersion: offered("jobVersion"),
      jobRef: offered("jobRef"),
    })
    .where(and(isQueued, inArray(seq, next)))
    .returning(),
);
