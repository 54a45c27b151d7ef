import { sql, type SQL, type SQLWrapper } from "drizzle-orm";
import type { Owner } from "../tenant.ts";
import { agents, executions, isInLine, isRunning, queueFronts, tenants } from "../schema.ts";

/**
 * The order of the queue. Each execution gets a turn when it is submitted: one more than the last turn
 * of its tenant's waiting executions, but at least the turn after the front of its job type. Its rank
 * is its turn minus the priority of its job type. The lowest rank is leased first.
 *
 * Tenant a submits five jobs, tenant b then two. The turns of both begin at 1, so they alternate:
 *
 *     submitted   a a a a a  b b
 *     turn        1 2 3 4 5  1 2
 *     leased      a b a b a a a
 *
 * The front of a job type is the last turn that its agents have reached. If three jobs of a had been
 * leased before b submitted, the front would be 3. Then the jobs of b get turns 4 and 5, the same as the
 * fourth and fifth job of a, and not earlier ones.
 *
 * So at most `n + 1` jobs of each other tenant are leased before the n-th job of a tenant, apart from the shares of
 * tenants (below). A higher priority of the other tenant's jobs adds the difference of the priorities.
 *
 * @param jobType The placeholder of the job type.
 */
export function nextTurn(own: Owner, jobType: SQL): SQL<number> {
  const front = sql`(select ${queueFronts.turn} from ${queueFronts} where ${queueFronts.jobType} is ${jobType})`;
  const last = sql`(select max(${executions.turn}) from ${executions} where ${isInLine} and ${own(executions)})`;
  return sql`1 + max(coalesce(${front}, 0), coalesce(${last}, 0))`;
}

/** Whether a tenant runs as many jobs as it may: its jobs wait, and nobody waits for them. */
export const isTenantFull = (tenant: SQL): SQL => sql`exists (select 1 from ${tenants}
  where ${tenants.name} = ${tenant} and ${tenants.maxRunning} is not null
    and ${tenants.running} >= ${tenants.maxRunning})`;

/**
 * How tenants share the slots of an agent. Two rules hold while more than one tenant is in use:
 *
 * - The last free slot is kept for tenants that have no job there, as long as one of the tenants in use has none. So one
 *   tenant can hold all slots but one, and the first job of another starts at once.
 * - A share is the number of slots divided by the number of tenants that run or wait there. Jobs above the share of
 *   their tenant are leased after the jobs of all others.
 *
 * Nothing that runs is ended: a tenant that holds more than its share comes down to it as its jobs end.
 */
const usedDays = 7;
/** Tenants that were made or used in the last days, read from an index. */
const inUse = (now: SQLWrapper) =>
  sql`${tenants.usedDay} >= ${now} / 86400000 - ${sql.raw(String(usedDays))}`;
/** Whether more than one tenant is in use. */
export const isShared = (now: SQLWrapper) =>
  sql<number>`(select count(*) from (select 1 from ${tenants} where ${inUse(now)} limit 2)) > 1`;

/**
 * Tables of a statement about an agent. `mine` has the tenants that hold something there, and how much. `space` has how
 * much the agent can hold (`most`), how much of that is `used`, and how many tenants in use hold nothing (`newcomers`; 2
 * stands for more).
 */
export const spaceOf = (held: SQL, most: SQL): SQL => sql`
  mine as materialized (select tenant, count(*) as n from (${held}) group by tenant),
  space as materialized (
    select coalesce((select ${most} from ${agents} where ${agents.id} = ${sql.placeholder("agentId")}), 1e9) as most,
      (select coalesce(sum(n), 0) from mine) as used,
      (select count(*) from (select 1 from ${tenants}
        where ${inUse(sql`${sql.placeholder("now")}`)} and ${tenants.name} not in (select tenant from mine) limit 2)) as newcomers)`;

export const jobsOfAgent = spaceOf(
  sql`select tenant from ${executions} where status = 'running' and agent_id = ${sql.placeholder("agentId")}
    and session_id is null`,
  sql`${agents.slots}`,
);

/**
 * Whether the next slot at the agent is kept from a tenant that holds one there. Needs `mine` and `space`. What the
 * agent says of free slots may be older than the table, which counts jobs whose files are being uploaded: they use none.
 */
export const isKeptFrom = (tenant: SQL): SQL => sql`(
  (select max(most - used, ${sql.placeholder("free")}) <= 1 and newcomers > 0 from space)
  and ${tenant} in (select tenant from mine))`;

const { rank, seq, turn, jobType, agentId, startedAt, sessionId } = executions;
const given = sql.placeholder;

/**
 * Moves the fronts of the offered job types after a claim, in the same transaction. A claim takes the
 * lowest rank that its agent may run. So the queue of each offered type has reached that rank, unless
 * an earlier job of the type still waits, for example for a GPU. The type of a leased job has reached
 * the job's turn, even if its priority had it leased earlier; otherwise a stream of such jobs would pass
 * the others forever.
 */
export const moveFronts = sql`
  with leased as materialized (
    select ${jobType} as type, ${turn} as turn, ${rank} as rank from ${executions}
    where ${isRunning} and ${agentId} = ${given("agentId")} and ${startedAt} = ${given("now")}
      and ${sessionId} is null),
  offered as (select value ->> 'jobType' as type from json_each(${given("offers")})),
  reached as (
    select type,
      (select max(iif(leased.type = offered.type, turn, min(turn, rank))) from leased) as turn,
      (select waiting.turn - 1 from ${executions} as waiting
        where waiting.status = 'queued' and waiting.session_id is null
          and waiting.job_type = offered.type and waiting.attempt = 0
          and waiting.available_at <= ${given("now")} and not ${isTenantFull(sql`waiting.tenant`)}
        order by waiting.rank, waiting.seq limit 1) as before_first
    from offered where exists (select 1 from leased))
  insert into ${queueFronts} (job_type, turn)
  select type, min(turn, coalesce(before_first, turn))
  from reached where true
  on conflict do update set turn = max(turn, excluded.turn)`;

/**
 * The number of its tenant's queued executions up to this one, itself included. For the last of them it is the
 * number of all, which nobody has to count. For others it is exact below `:most`; above, it is the number of
 * all too, so that a long queue is not counted.
 */
export const position = (own: Owner) => {
  const line = sql`${executions} ${own.anybody(executions, "its tenant's")}
    where ${isInLine} and ${executions.tenant} = its.tenant`;
  return sql<number>`
    select coalesce(
      case when exists (select 1 from ${line} and (${rank}, ${seq}) > (its.rank, its.seq)) then (
        select iif(n < ${given("most")}, n, null) from (
          select count(*) as n from (
            select 1 from ${line} and (${rank}, ${seq}) <= (its.rank, its.seq)
            limit ${given("most")})))
      end,
      (select queued from ${tenants} ${own.anybody(tenants, "its tenant's")} where name = its.tenant)
    ) as position
    from ${executions} as its where its.id = ${given("id")} and ${own(executions, "its")}`;
};
