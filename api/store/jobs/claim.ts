import { and, eq, lte, not, sql, type SQL } from "drizzle-orm";
import { type InputWay, waysOf } from "../../../shared/wire/file.ts";
import { type ExecutionRow, executionColumns } from "./row.ts";
import { transact, type Database } from "../database.ts";
import { newLease, type LeaseTerms } from "./lease.ts";
import { takesWork } from "../agents/agents.ts";
import { executions, isInLine, tenants } from "../schema.ts";
import { isKeptFrom, isShared, isTenantFull, jobsOfAgent, moveFronts } from "./line.ts";
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
 * used, and records what they run on. One guarded statement leases them all; where tenants share the slots or have
 * limits, each gets a statement of its own. An execution that needs more GPUs than are free reserves the free ones, so
 * that jobs behind it cannot take them and it gets enough.
 */
export async function claimNext(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  { slots, gpus, inputs }: Room,
  offers: Offer[],
): Promise<ExecutionRow[]> {
  const jobTypes = JSON.stringify(offers.map(({ jobType }) => jobType));
  const values = { ways: waysOf(inputs).join(" "), agentId, expiresAt, now };
  const leased: ExecutionRow[] = [];
  while (leased.length < slots && offers.length > 0) {
    const free = slots - leased.length;
    const due = await firstDue(db, { ...values, jobTypes, free });
    if (!due) break;
    const room = {
      slots: due.isBounded ? 1 : slots,
      gpus: leased.reduce((left, row) => left - gpusOf(row, offers), gpus),
      offers: JSON.stringify(offers),
    };
    const given = { ...values, ...room, free };
    const statement = due.isBounded ? claimShared : claim;
    const [claimed] = await transact(db, [statement(given), move(given)]);
    leased.push(...claimed!.rows.map(decode).sort((a, b) => a.rank - b.rank || a.seq - b.seq));
    if (!due.isBounded || claimed!.rows.length === 0) break;
  }
  return leased;
}

const gpusOf = ({ jobType }: ExecutionRow, offers: Offer[]): number =>
  offers.find((offer) => offer.jobType === jobType)?.gpus ?? 0;

const { seq, rank, tenant, jobType, availableAt, startBy, attempt, inputs } = executions;
const given = sql.placeholder;
/** A job that was leased before may start late. */
const isInTime = sql`(${startBy} is null or ${startBy} > ${given("now")} or ${attempt} > 0)`;
const isKnown = sql`(${inputs} is null or instr(${given("ways")}, ${inputs}))`;
const isDue = and(isInLine, lte(availableAt, given("now")), isInTime, isKnown);

/** Whether any tenant has `max_running`, or tenants share the agents. This check takes a tenth of a claim's time. */
const isBounded = sql<number>`(exists (select 1 from ${tenants} where ${tenants.maxRunning} is not null) or ${isShared(sql`${given("now")}`)})`;
/** `iif`, so that `space` and `mine` are read only where tenants share the agents. */
const isKept = (tenant: SQL): SQL =>
  sql`iif(${isShared(sql`${given("now")}`)}, exists (with ${jobsOfAgent} select 1 where ${isKeptFrom(tenant)}), 0)`;

/** Whether any job waits. This only reads, while a claim would take the write lock. */
const firstDue = rowQuery(
  query
    .select({ seq, isBounded })
    .from(executions)
    .where(
      and(
        isDue,
        sql`${jobType} in ${listed("jobTypes")}`,
        not(isTenantFull(sql`${tenant}`)),
        not(isKept(sql`${tenant}`)),
      ),
    )
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

const open = sql`and not ${isTenantFull(sql`waiting.tenant`)} and not ${isKeptFrom(sql`waiting.tenant`)}`;
/** The tenants at or above their share of the agent's slots. Each tenant that waits costs one look at the index. */
const share = sql`lines(tenant) as (
    select min(tenant) from ${executions} where ${isInLine}
    union all
    select (select min(tenant) from ${executions} where ${isInLine} and tenant > lines.tenant)
    from lines where lines.tenant is not null limit (select min(most, 1000) from space)),
  above as materialized (
    select tenant from mine where n >= (select max(1, most / (select count(*) from (
      select tenant from mine union select tenant from lines where tenant is not null))) from space))`;
const below = sql`${open} and waiting.tenant not in above`;

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
/** One job, because each job changes which tenant may have the next one. */
const nextShared = sql`(with recursive ${jobsOfAgent}, ${share}
  select seq, version, ref from (
    select *, sum(gpus) over (order by late, rank, seq) as needed from (
      select *, tenant in above as late from (
        select * from (${headsOf(below)}) union select * from (${headsOf(open)}))))
  where gpus = 0 or needed <= ${given("gpus")}
  order by late, rank, seq limit 1) as next`;

const decode = decoder(executionColumns);
const move = statement(moveFronts);
const claimOf = (next: SQL) =>
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
      .from(next)
      .where(and(isInLine, takesWork(given("agentId")), eq(seq, sql`next.seq`)))
      .returning(executionColumns),
  );
const claim = claimOf(nextOf(headsOf(sql``)));
const claimShared = claimOf(nextShared);
