import type { SessionPatch } from "../../shared/wire/client/session.ts";
import type { ClientDeps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { cancelUnlessEnded } from "../jobs/wait.ts";
import { type Actor, audited } from "../store/audit.ts";
import { advanceSession } from "../store/sessions/advance-session.ts";
import { changeSession } from "../store/sessions/change-session.ts";
import { findRunningCall, type SessionRow } from "../store/sessions/sessions.ts";
import { checkLifetime } from "./create-session.ts";
import { requireSession, sessionEnded } from "./read-session.ts";
import { tellSession } from "./tell-session.ts";

/** @throws AppError 404 when it is unknown; 409 when it has ended; 422 when the lifetime is too long. */
export async function patchSession(
  deps: ClientDeps,
  id: string,
  { lifetime, idle_timeout, metadata }: SessionPatch,
): Promise<SessionRow> {
  if (lifetime !== undefined) checkLifetime(deps, lifetime);
  await requireSession(deps, id);
  const changed = await changeSession(deps.db, id, {
    ...(lifetime !== undefined && { expiresAt: deps.now() + lifetime * 1000 }),
    ...(idle_timeout !== undefined && { idleTimeoutS: idle_timeout }),
    ...(metadata !== undefined && { metadata }),
  });
  if (changed) return changed;
  throw sessionEnded(await requireSession(deps, id));
}

/** Ends a session; a repeat changes nothing. @throws AppError 404 when it is unknown. */
export async function deleteSession(deps: ClientDeps, id: string, by: Actor): Promise<void> {
  const entry = audited(by, "session.delete", id);
  const result = await advanceSession(deps.db, { id }, { kind: "delete" }, by.at, [entry]);
  if (result.kind === "not_found") throw notFound(`Session ${id}`, { session_id: id });
  if (result.kind === "changed") tellSession(deps, result);
}

/** Cancels the call that runs; returns its id, or null if none ran or it ended by itself first. @throws AppError 404 when the session is unknown. */
export async function interrupt(deps: ClientDeps, id: string): Promise<string | null> {
  await requireSession(deps, id);
  const call = await findRunningCall(deps.db, id);
  return call && (await cancelUnlessEnded(deps, call)) ? call : null;
}
