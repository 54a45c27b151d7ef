import { sql, type SQL } from "drizzle-orm";
import { executions, isOpenSession, isWaitingCall, sessions } from "../schema.ts";
import type { Owner } from "../tenant.ts";

/** The place of a call in its session: calls run one at a time, in the order of their numbers. */

const given = sql.placeholder;

/** Number of calls that wait in the session of a new call. */
export const callsWaiting = (own: Owner): SQL =>
  sql`(select count(*) from ${executions} as waiting
  where ${own.anybody(executions, "takesCall checks whose session it is", "waiting")} waiting.session_id = ${given("sessionId")} and waiting.status = 'queued' and waiting.session_id is not null)`;

/** The number of a new call. */
export const nextCall = (own: Owner): SQL =>
  sql`(select ${sessions.calls} + 1 from ${sessions} where ${isItsSession(own)})`;

/** Whether the session of a new call is the tenant's, has not ended, and has the context, at the time of the call. */
export const takesCall = (own: Owner): SQL =>
  sql`exists (select 1 from ${sessions} where ${isItsSession(own)} and ${isOpenSession}
    and ${sessions.expiresAt} > ${given("createdAt")} and (${given("context")} = 'default'
    or exists (select 1 from json_each(${sessions.contexts}) where value = ${given("context")})))`;

const isItsSession = (own: Owner): SQL =>
  sql`${sessions.id} = ${given("sessionId")} and ${own(sessions)}`;

/** The number of calls of its session that wait up to this one, itself included. */
export const positionOfCall = (own: Owner): SQL<number> => sql`
  with its as materialized (
    select session_id, seq from ${executions} where ${executions.id} = ${given("id")} and ${own(executions)})
  select count(*) as position from ${executions} ${own.anybody(executions, "its session's, which `its` has checked")}
  where ${isWaitingCall} and ${executions.sessionId} = (select session_id from its)
    and ${executions.seq} <= (select seq from its)`;
