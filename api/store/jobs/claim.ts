import { and, getTableColumns, inArray, lte, sql, type SQL } from "drizzle-orm";
import type { ExecutionRow } from "./advance.ts";
import { batch, type Database } from "../database.ts";
import { randomUuid, type LeaseTerms } from "./lease.ts";
import { hasNotLeft } from "../agents/agents.ts";
import { executions, isQueued } from "../schema.ts";
import { moveFronts } from "./line.ts";
import { decoder, listed, query, rowsQuery, statement } from "../statement.ts";

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
  const [claimed] = await batch(db, [claim(values), move(values)]);
  return claimed!.rows.map(decode).sort((a, b) => a.place - b.place || a.seq - b.seq);
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

/**
 * The first jobs of each offered type, as many as there are slots: the next ones to lease are among
 * them. It costs the same however many jobs of other types wait in front.
 */
const heads = sql`select ${seq} as seq, ${place} as place, offer.value ->> 'gpus' as gpus
  from json_each(${given("offers")}) as offer cross join ${executions}
  where ${seq} in (
    select waiting.seq from ${executions} as waiting
    where waiting.status = 'queued' and waiting.job_type = offer.value ->> 'jobType'
      and waiting.available_at <= ${given("now")}
    order by waiting.place, waiting.seq limit ${given("slots")})`;

/**
 * The jobs to lease. `needed` is the number of GPUs of a job and of all before it. With 3 slots and
 * 2 free GPUs:
 *
 *     place   type    gpus  needed
 *     1       train   1     1       leased
 *     2       big     2     3       waits: the one GPU left is kept for it
 *     3       train   1     4       waits behind it
 *     4       plain   0     4       leased, as it needs no GPU
 */
const next = sql`(select seq from (
    select seq, place, gpus, sum(gpus) over (order by place, seq) as needed from (${heads}))
  where gpus = 0 or needed <= ${given("gpus")}
  order by place, seq limit ${given("slots")})`;

const decode = decoder(getTableColumns(executions));
const move = statement(moveFronts);
const claim = statement(
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
    .where(and(isQueued, hasNotLeft(given("agentId")), inArray(seq, next)))
    .returning(),
);
