import type { ReleaseReport } from "../../shared/wire/agent/lease.ts";
import type { SessionEnded, SessionReady } from "../../shared/wire/agent/session.ts";
import type { Deps } from "../deps.ts";
import type { SessionEvent } from "../domain/session-transition.ts";
import { leaseLost, requireHeld } from "../jobs/lease-post.ts";
import { tellSession } from "../sessions/tell-session.ts";
import { advanceSession } from "../store/sessions/advance-session.ts";
import { findSessionByLease, type SessionRow } from "../store/sessions/sessions.ts";

/** An agent's posts for the lease of a session. They are idempotent, like the posts for an execution. */

/** @throws AppError 403 when the lease belongs to an agent with another token; 409 when it is gone. */
export async function requireSessionLease(
  { db }: Deps,
  leaseId: string,
  tokenHash: string,
): Promise<SessionRow> {
  return requireHeld(db, await findSessionByLease(db, leaseId), leaseId, tokenHash);
}

type Post = Extract<SessionEvent, { leaseId: string }>;

/** Applies a post. Returns false if the lease no longer holds, or the session is in another state. */
export async function applyPost(deps: Deps, event: Post): Promise<boolean> {
  const { db, now } = deps;
  const result = await advanceSession(db, { leaseId: event.leaseId }, event, now());
  if (result.kind === "changed") tellSession(deps, result);
  return result.kind === "changed";
}

/** @throws AppError 409 when the lease is gone. */
export async function recordReady(
  deps: Deps,
  { status }: SessionRow,
  leaseId: string,
  report: SessionReady,
): Promise<void> {
  if (status === "ready") return;
  if (!(await applyPost(deps, { kind: "ready", leaseId, report }))) throw leaseLost(leaseId);
}

/** @throws AppError 409 when the lease is gone, or the session has ended otherwise. */
export async function recordSessionEnd(
  deps: Deps,
  session: SessionRow,
  leaseId: string,
  { reason, error }: SessionEnded,
): Promise<void> {
  if (session.reason === reason) return;
  if (!(await applyPost(deps, { kind: "end", leaseId, reason, error }))) throw leaseLost(leaseId);
}

/** @throws AppError 409 when the lease is gone, or the session was ready. */
export async function releaseSession(
  deps: Deps,
  leaseId: string,
  { error, agent_stops }: ReleaseReport,
): Promise<void> {
  const event = agent_stops
    ? ({ kind: "leave", leaseId } as const)
    : ({ kind: "release", leaseId, error } as const);
  if (!(await applyPost(deps, event))) throw leaseLost(leaseId);
}
