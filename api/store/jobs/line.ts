import { sql, type SQL } from "drizzle-orm";
import { executions, isQueued, queueLength } from "../schema.ts";

/**
 * The order of the queue. Each execution takes a turn when it is submitted: the one after the last
 * that its API key has waiting, and none that the queue has passed. Its place is its turn less the
 * priority of its job type, and the lowest place is leased first.
 *
 * So the executions of a key have a turn each, and those of two keys alternate however many either
 * has submitted: of every other key at most `n + 1` go before the n-th of a key, and as many more as
 * their priority is higher. And as turns only grow, nothing is overtaken for ever, whatever its
 * priority, and whatever it was that no agent could run it.
 *
 * @param keyId The placeholder of the submitting key.
 */
export function nextTurn(keyId: SQL): SQL<number> {
  const passed = sql`(select ${queueLength.reached} from ${queueLength})`;
  const last = sql`(select max(${executions.turn}) from ${executions} where ${isQueued} and ${executions.keyId} is ${keyId})`;
  return sql`1 + max(${passed}, coalesce(${last}, 0))`;
}

const { jobType, place, seq, id } = executions;
const own = sql`(select ${place}, ${seq} from ${executions} where ${id} = ${sql.placeholder("id")})`;

/**
 * The number of queued executions up to this one, itself included, which is exact below `:most`;
 * there it is the length of the queue, so that it costs the same however long that is.
 */
export const position = sql<number>`
  with recursive
    waiting(type) as (
      select min(${jobType}) from ${executions} where ${isQueued}
      union all
      select (select min(${jobType}) from ${executions} where ${isQueued} and ${jobType} > type)
      from waiting where type is not null),
    ahead(n) as (
      select sum((select count(*) from (
        select 1 from ${executions}
        where ${isQueued} and ${jobType} = type and (${place}, ${seq}) <= ${own}
        limit ${sql.placeholder("most")})))
      from waiting where type is not null)
  select iif(n < ${sql.placeholder("most")}, n, ${queueLength.queued}) as position
  from ahead, ${queueLength}`;
