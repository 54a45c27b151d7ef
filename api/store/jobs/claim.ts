import { and, eq, lte, not, sql, type SQL } from "drizzle-orm";
import { type InputWay, waysOf } from "../../../shared/wire/file.ts";
import { type ExecutionRow, executionColumns } from "./row.ts";
import { transact, type Database } from "../database.ts";
import { newLease, type LeaseTerms } from "./lease.ts";
import { takesWork } from "../agents/agents.ts";
import { executions, isInLine, tenants } from "../schema.ts";
import { isTenantFull, moveFronts } from "./line.ts";
import { decoder, listed, query, rowQuery, statement } from "../statement.ts";

/** A job type whose jobs may be leased, and the values for their records. */
export interface Offer {
  jobType: string;
  jobVersion: string;
  /** Null if the agent will report it. */
  jobRef: string | null;
  /** GPUs that each of its jobs needs. */
  gpus: number;
}

/** Free slots and GPUs of an agent, and how it gives jobs their stdin, args and files, if it can. */
export interface Room {
  slots: number;
  gpus: number;
  inputs?: InputWay | undefined;
}

/**
 * Leases queued executions of the offered job types in the order of their ranks, until the room is
 * used, and records what they run on: all in one guarded statement. An execution that needs more GPUs
 * than are free reserves the free ones, so that jobs behind it cannot take them and it gets enough.
 */
export async function claimNext(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  { slots, gpus, inputs }: Room,
  offers: Offer[],
): Promise<ExecutionRow[]> {
  const jobTypes = JSON.stringify(offers.map(({ jobType }) => jobType));
  const ways = waysOf(inputs).join(" ");
  const due = offers.length > 0 && (await firstDue(db, { now, jobTypes, ways }));
  if (!due) return [];
  const values = { ways, agentId, expiresAt, now, slots, gpus, offers: JSON.stringify(offers) };
  const [claimed] = await transact(db, [
    (due.isBounded ? claimBounded : claim)(values),
    move(values),
  ]);
  return claimed!.rows.map(decode).sort((a, b) => a.rank - b.rank || a.seq - b.seq);
}

const { seq, rank, tenant, jobType, availableAt, startBy, attempt, inputs } = executions;
const given = sql.placeholder;
/** A job that was leased before may start late. */
const isInTime = sql`(${startBy} is null or ${startBy} > ${given("now")} or ${attempt} > 0)`;
const isKnown = sql`(${inputs} is null or instr(${given("ways")}, ${inputs}))`;
const isDue = and(isInLine, lte(availableAt, given("now")), isInTime, isKnown);

/** Whether any tenant has `max_running`. To look after it takes a tenth of a claim's time. */
const isBounded = sql<number>`exists (select 1 from ${tenants} where ${tenants.maxRunning} is not null)`;

/** Whether any job waits. This only reads, while a claim would take the write lock. */
const firstDue = rowQuery(
  query
    .select({ seq, isBounded })
    .from(executions)
    .where(and(isDue, sql`${jobType} in ${listed("jobTypes")}`, not(isTenantFull(sql`${tenant}`))))
    .limit(1),
);

/**
 * The first jobs of each offered type, as many as there are slots, without those of full tenants. The next
 * jobs to lease are among them. The cost does not depend on how many jobs of other types wait before them.
 */
const headsOf = (
  which: SQL,
): SQL => sql`select ${seq} as seq, ${rank} as rank, ${tenant} as tenant, offer.value ->> 'gpus' as gpus,
    offer.value ->> 'jobVersion' as version, offer.value ->> 'jobRef' as ref
  from json_each(${given("offers")}) as offer cross join ${executions}
  where ${seq} in (
    select waiting.seq from ${executions} as waiting
    where waiting.status = 'queued' and waiting.session_id is null
      and waiting.job_type = offer.value ->> 'jobType'
      and waiting.available_at <= ${given("now")}
      and (waiting.start_by is null or waiting.start_by > ${given("now")} or waiting.attempt > 0)
      and (waiting.inputs is null or instr(${given("ways")}, waiting.inputs)) ${which}
    order by waiting.rank, waiting.seq limit ${given("slots")})`;

const open = sql`and not ${isTenantFull(sql`waiting.tenant`)}`;
/** The heads that `max_running` of their tenants leaves room for. A later claim takes the others. */
const roomy = sql`select * from (
    select *, row_number() over (partition by tenant order by rank, seq) as nth from (${headsOf(open)}))
  where nth <= coalesce((select max_running - running from ${tenants}
    where ${tenants.name} = tenant and max_running is not null), nth)`;

/**
 * The jobs to lease. `needed` is the number of GPUs that a job and all jobs before it need. With 3
 * slots and 2 free GPUs:
 *
 *     rank    type    gpus  needed
 *     1       train   1     1       leased
 *     2       big     2     3       waits; the one GPU left is reserved for it
 *     3       train   1     4       waits behind it
 *     4       plain   0     4       leased, because it needs no GPU
 */
const nextOf = (heads: SQL): SQL => sql`(select seq, version, ref from (
    select *, sum(gpus) over (order by rank, seq) as needed from (${heads}))
  where gpus = 0 or needed <= ${given("gpus")}
  order by rank, seq limit ${given("slots")}) as next`;

const decode = decoder(executionColumns);
const move = statement(moveFronts);
const claimOf = (heads: SQL) =>
  statement(
    query
      .update(executions)
      .set({
        status: "running",
        attempt: sql`${executions.attempt} + 1`,
        ...newLease,
        jobVersion: sql`next.version`,
        jobRef: sql`next.ref`,
      })
      .from(nextOf(heads))
      .where(and(isInLine, takesWork(given("agentId")), eq(seq, sql`next.seq`)))
      .returning(executionColumns),
  );
const claim = claimOf(headsOf(sql``));
const claimBounded = claimOf(roomy);
