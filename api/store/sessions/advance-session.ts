import { and, sql } from "drizzle-orm";
import {
  sessionTransition,
  type SessionEvent,
  type SessionRefusal,
} from "../../domain/session-transition.ts";
import { executions, sessions } from "../schema.ts";
import { decoder, query } from "../statement.ts";
import { type AnyDb, batch, perTenant, type TenantFilled } from "../tenant.ts";
import { unchangedUpdates } from "../unchanged.ts";
import { executionColumns, type ExecutionRow } from "../jobs/row.ts";
import { endCalls } from "./end-calls.ts";
import { findSession, findSessionByLease, type SessionRow } from "./sessions.ts";

export type AdvancedSession =
  /** `calls`: those that have ended with it, or are asked to end. */
  | { kind: "changed"; session: SessionRow; calls: ExecutionRow[] }
  | { kind: "refused"; refusal: SessionRefusal; session: SessionRow }
  | { kind: "not_found" };

type Target = { id: string } | { leaseId: string };

/**
 * Applies an event to one session, as `advance` does to an execution. If it ends the session, its calls end in the
 * same transaction.
 *
 * @param companions Further statements of the transaction, right after the change.
 */
export async function advanceSession(
  db: AnyDb,
  target: Target,
  event: SessionEvent,
  now: number,
  companions: TenantFilled[] = [],
): Promise<AdvancedSession> {
  for (;;) {
    const session = await ("id" in target
      ? findSession(db, target.id)
      : findSessionByLease(db, target.leaseId));
    if (!session) return { kind: "not_found" };
    const result = sessionTransition(session, event, now);
    if (!result.ok) return { kind: "refused", refusal: result.refusal, session };

    const { change } = result;
    const ends = change.status === "ended";
    const [updated, ...others] = await batch(db, [
      updateUnchanged(session, change, event.kind === "idle"),
      ...companions,
      ...(ends ? endCalls(session.id, change.reason!, now) : []),
    ]);
    if (updated?.rowsAffected === 1) {
      const calls = others.slice(companions.length).flatMap(({ rows }) => rows.map(decode));
      return { kind: "changed", session: { ...session, ...change }, calls };
    }
    // A call came before the idle session could end.
    if (event.kind === "idle") return { kind: "refused", refusal: "not_due", session };
  }
}

const decode = decoder(executionColumns);

const decidingColumns = [
  "id",
  "status",
  "attempt",
  "leaseId",
  "leaseExpiresAt",
  "usedAt",
  "expiresAt",
  "idleTimeoutS",
] as const;

const updateUnchanged = unchangedUpdates(sessions, decidingColumns, (set, isUnchanged, ifUnused) =>
  perTenant((own) => {
    const isUnused = sql`not exists (select 1 from ${executions} where ${own(executions)}
      and ${executions.sessionId} = ${sessions.id} and ${executions.endedAt} is null)`;
    const conditions = [...isUnchanged, ifUnused ? isUnused : undefined, own(sessions)];
    return query
      .update(sessions)
      .set(set)
      .where(and(...conditions));
  }),
);
