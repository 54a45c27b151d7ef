import type { Session, SessionRequest, SessionStatus } from "../generated.ts";
import type { RunToEnd } from "../jobs/jobs.ts";
import { type Ask, pages, pathOf } from "../transport/ask.ts";
import type { CallOptions, Transport } from "../transport/transport.ts";
import { type OpenSession, openSession } from "./open-session.ts";

/** Sessions: interpreters that remember from call to call. */
export interface Sessions {
  /**
   * A new session. It lives until it is closed, idle for `idle_timeout`, or older than `lifetime`. If none could be
   * started within `wait` seconds, it is still queued: its calls wait for it.
   */
  readonly create: (request?: SessionRequest, options?: CallOptions) => Promise<OpenSession>;
  /** A session that is there already. Sends no request. */
  readonly attach: (sessionId: string) => OpenSession;
  /** Its state: whether it is ready, and what it ended of. */
  readonly get: (sessionId: string, options?: CallOptions) => Promise<Session>;
  /** The newest first, also those that have ended. They are fetched page by page, as they are read. */
  readonly list: (
    filters?: { status?: SessionStatus; limit?: number },
    options?: CallOptions,
  ) => AsyncGenerator<Session, void>;
}

/** How long the service waits for a new session if the request does not say it. */
const WAIT_S = 30;

export function sessions(ask: Ask, service: Transport, runToEnd: RunToEnd): Sessions {
  const attach: Sessions["attach"] = (id) => openSession(id, ask, service, runToEnd);
  return {
    create: async (body = {}, options) => {
      const timeoutMs = service.timeoutMs && service.timeoutMs + (body.wait ?? WAIT_S) * 1000;
      const what = { method: "POST", body } as const;
      const made = await ask<Session>("/sessions", what, { timeoutMs, ...options });
      return attach(made.session_id);
    },
    attach,
    get: async (id, options) => ask(pathOf("sessions", id), {}, options),
    list: (filters = {}, options) =>
      pages<Session>(ask, "/sessions", { ...filters }, ({ session_id: id }) => id, options),
  };
}
