import { defaultContext } from "../../shared/wire/client/session.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { addContext, removeContext } from "../store/sessions/change-session.ts";
import { requireSession, sessionEnded } from "./read-session.ts";

/**
 * Makes a context. Its interpreter starts with its first call.
 *
 * @throws AppError 409 when the session has ended, or has as many contexts as it may.
 */
export async function makeContext(deps: ClientDeps, id: string): Promise<string> {
  const context = deps.newId();
  if (await addContext(deps.db, id, context)) return context;
  const session = await requireSession(deps, id);
  if (session.status === "ended") throw sessionEnded(session);
  const detail = `Session ${id} has ${limits.contextsMax} contexts: delete one first.`;
  throw new AppError("conflict", detail, { session_id: id });
}

/**
 * Removes a context. Its interpreter ends before the session's next call.
 *
 * @throws AppError 404 when there is none; 409 when a call of it waits or runs, or it is the default one.
 */
export async function dropContext(deps: ClientDeps, id: string, context: string): Promise<void> {
  if (await removeContext(deps.db, id, context)) return;
  const session = await requireSession(deps, id);
  if (session.status === "ended") throw sessionEnded(session);
  if (context === defaultContext) {
    const detail = "The context default stays: POST /sessions/{id}/restart starts it anew.";
    throw new AppError("conflict", detail, { session_id: id });
  }
  if (!session.contexts.includes(context)) {
    throw notFound(`Context ${context} of session ${id}`, { session_id: id });
  }
  const detail = `Context ${context} has calls that wait or run: cancel them first.`;
  throw new AppError("conflict", detail, { session_id: id });
}
