import { and, eq, sql } from "drizzle-orm";
import type { EndReason } from "../../../shared/wire/end-reason.ts";
import { callLostMessage } from "../../domain/transition.ts";
import { withLoss } from "../jobs/attempts.ts";
import { executionColumns } from "../jobs/row.ts";
import { executions, isRunningCall, isWaitingCall, sessions } from "../schema.ts";
import { query } from "../statement.ts";
import { type Owner, perTenant, type TenantFilled } from "../tenant.ts";

/** Whether a session ended because its sandbox died: the call that ran has ended too, and its agent tells how. */
export function isOfSandbox(reason: EndReason | null): boolean {
  return reason === "engine_lost" || reason === "out_of_memory";
}

/**
 * Ends the calls of a session that has just ended. Those that wait are cancelled. The one that runs is asked to
 * end, so that its output is kept, unless its sandbox died; if its agent is lost, it has failed.
 */
export function endCalls(id: string, reason: EndReason, now: number): TenantFilled[] {
  const values = { sessionId: id, reason, now };
  if (isOfSandbox(reason)) return [cancelWaiting(values)];
  const running = reason === "agent_lost" ? failRunning : askRunning;
  return [cancelWaiting(values), running(values)];
}

const given = sql.placeholder;
/** The session ended in the same transaction, at this time. */
const isOfEnded = (own: Owner) =>
  and(
    eq(executions.sessionId, given("sessionId")),
    sql`exists (select 1 from ${sessions} where ${sessions.id} = ${given("sessionId")}
      and ${sessions.endedAt} = ${given("now")} and ${own(sessions)})`,
    own(executions),
  );

const cancelWaiting = perTenant((own) =>
  query
    .update(executions)
    .set({
      status: "cancelled",
      error: sql`json_object('type', 'cancelled', 'message', 'The session ended: ' || ${given("reason")} || '.', 'phase', 'startup')`,
      endedAt: sql`${given("now")}`,
    })
    .where(and(isWaitingCall, isOfEnded(own)))
    .returning(executionColumns),
);

const askRunning = perTenant((own) =>
  query
    .update(executions)
    .set({ cancelRequested: true })
    .where(and(isRunningCall, isOfEnded(own)))
    .returning(executionColumns),
);

const phase = sql`iif(${executions.codeStartedAt} is null, 'startup', 'execution')`;
const failRunning = perTenant((own) =>
  query
    .update(executions)
    .set({
      lostAttempts: withLoss({ outcome: "lease_expired", error: null, now: given("now") }),
      status: "failed",
      error: sql`json_object('type', 'internal_error', 'message', ${callLostMessage}, 'phase', ${phase})`,
      endedAt: sql`${given("now")}`,
      leaseExpiresAt: null,
    })
    .where(and(isRunningCall, isOfEnded(own)))
    .returning(executionColumns),
);
