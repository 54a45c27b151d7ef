import { sql, type SQL } from "drizzle-orm";
import { executions, isQueued, isRunning, queueFronts, queueLength } from "../schema.ts";

/**
 * The order of the queue. Each execution gets a turn when it is submitted: the one after the last
 * that its API key has waiting, and never one before the front of its job type. Its place is its
 * turn less the priority of its job type. The lowest place is leased first.
 *
 * Key a submits five jobs, key b then two. The turns of both begin at 1, so they alternate:
 *
 *     submitted   a a a a a  b b
 *     turn        1 2 3 4 5  1 2
 *     leased      a b a b a a a
 *
 * The front of a job type is the last turn that its agents have come to. Had three of a been leased
 * before b came, the front would be 3: the jobs of b get the turns 4 and 5, beside the fourth and
 * the fifth of a, and not before them.
 *
 * So at most `n + 1` jobs of every other key are leased before the n-th of a key, and as many more
 * as their priority is higher.
 *
 * @param keyId The placeholder of the submitting key.
 * @param jobType The placeholder of the job type.
 */
export function nextTurn(keyId: SQL, jobType: SQL): SQL<number> {
  const front = sql`(select ${queueFronts.turn} from ${queueFronts} where ${queueFronts.jobType} is ${jobType})`;
  const last = sql`(select max(${executions.turn}) from ${executions} where ${isQueued} and ${executions.keyId} is ${keyId})`;
  return sql`1 + max(coalesce(${front}, 0), coalesce(${last}, 0))`;
}

const { place, seq, id, turn, jobType, agentId, startedAt } = executions;
const given = sql.placeholder;

/**
 * Moves the fronts of the offered job types after a claim, in the same transaction. A claim takes
 * the lowest place of all that its agent may run, so the queue of each of these types has come as
 * far, unless an earlier job of the type still waits, for a GPU for example. The type of a leased job has come to its turn, also where the priority has it leased before its turn: else a
 * stream of such jobs would pass the others for ever.
 */
export const moveFronts = sql`
  with leased as materialized (
    select ${jobType} as type, ${turn} as turn, ${place} as place from ${executions}
    where ${isRunning} and ${agentId} = ${given("agentId")} and ${startedAt} = ${given("now")}),
  offered as (select value ->> 'jobType' as type from json_each(${given("offers")})),
  reached as (
    select type,
      (select max(iif(leased.type = offered.type, turn, min(turn, place))) from leased) as turn,
      (select waiting.turn - 1 from ${executions} as waiting
        where waiting.status = 'queued' and waiting.job_type = offered.type and waiting.attempt = 0
        order by waiting.place, waiting.seq limit 1) as before_first
    from offered where exists (select 1 from leased))
  insert into ${queueFronts} (job_type, turn)
  select type, min(turn, coalesce(before_first, turn))
  from reached where true
  on conflict do update set turn = max(turn, excluded.turn)`;

const own = sql`(select ${place}, ${seq} from ${executions} where ${id} = ${given("id")})`;

/**
 * The number of queued executions up to this one, itself included. It is exact below `:most`; from
 * there on it is the length of the queue, so that it costs no more however long that is.
 */
export const position = sql<number>`
  select iif(n < ${given("most")}, n, ${queueLength.queued}) as position
  from ${queueLength}, (
    select count(*) as n from (
      select 1 from ${executions} where ${isQueued} and (${place}, ${seq}) <= ${own}
      limit ${given("most")}))`;
