import type { Deps } from "../deps.ts";
import { type SessionEvent, idleAt } from "../domain/session-transition.ts";
import { advanceSession } from "../store/sessions/advance-session.ts";
import { dueSessions } from "../store/sessions/session-lease.ts";
import type { SessionRow } from "../store/sessions/sessions.ts";
import { tellSession } from "./tell-session.ts";

/** Ends the sessions whose time is over, and those whose agent is lost; one that was not ready gets another agent. */
export async function sweepSessions(deps: Deps): Promise<void> {
  const { db, now, log } = deps;
  for (const session of await dueSessions(db, now())) {
    const event = dueEvent(session, now());
    const result = event && (await advanceSession(db, { id: session.id }, event, now()));
    if (result?.kind !== "changed") continue;
    const { id, status, reason, correlationId } = result.session;
    log.with({ correlationId }).info("session {id}: {event}, now {status}", {
      id,
      event: event?.kind,
      status: reason ?? status,
    });
    tellSession(deps, result);
  }
}

/** What time has done to a session; undefined if nothing. */
function dueEvent(session: SessionRow, now: number): SessionEvent | undefined {
  const { leaseExpiresAt, expiresAt } = session;
  if (leaseExpiresAt !== null && leaseExpiresAt <= now) return { kind: "expire" };
  if (expiresAt <= now) return { kind: "lifetime" };
  return idleAt(session) <= now ? { kind: "idle" } : undefined;
}
