import type { Session } from "../../shared/wire/client/session.ts";
import { defaultContext } from "../../shared/wire/client/session.ts";
import type { ClientDeps } from "../deps.ts";
import { idleAt } from "../domain/session-transition.ts";
import { whyNobodyHolds } from "../domain/agents/waiting.ts";
import { AppError, notFound } from "../errors.ts";
import { readEnvironment } from "../jobs/environments.ts";
import { optionalTimestamp, timestamp } from "../jobs/record.ts";
import { listAgents } from "../store/agents/agents.ts";
import { openBuilds } from "../store/builds/builds.ts";
import { busySessions, findSession, type SessionRow } from "../store/sessions/sessions.ts";
import { ofTenant } from "../store/tenant.ts";
import { backstopMs } from "../waiting.ts";

/** @throws AppError 404 when it is unknown. */
export async function requireSession(
  deps: Pick<ClientDeps, "db" | "now" | "endOverdue">,
  id: string,
): Promise<SessionRow> {
  const session = await findSession(deps.db, id);
  if (!session) throw notFound(`Session ${id}`, { session_id: id });
  if (endsAt(session) > deps.now()) return session;
  await deps.endOverdue();
  return (await findSession(deps.db, id)) ?? session;
}

/** When time ends it, unless it is busy then. */
const endsAt = (session: SessionRow): number =>
  session.status === "ended" ? Infinity : Math.min(session.expiresAt, idleAt(session));

/** Waits until a session is ready or has ended, `timeoutMs` have passed, or the signal aborts. */
export async function waitUntilReady(
  deps: ClientDeps,
  id: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<SessionRow> {
  const { notifier, now } = deps;
  const deadline = now() + timeoutMs;
  const wakes = notifier.subscribe([`session:${id}`]);
  try {
    for (;;) {
      const session = await requireSession(deps, id);
      const isWaiting = session.status === "queued" || session.status === "starting";
      const left = deadline - now();
      if (!isWaiting || left <= 0 || signal.aborted) return session;
      await wakes.next(Math.min(left, backstopMs), signal);
      await deps.recheck();
    }
  } finally {
    wakes.close();
  }
}

export function sessionEnded({ id, reason, error }: SessionRow): AppError {
  const why = error ? `${reason}: ${error.message}` : reason;
  return new AppError("session_ended", `Session ${id} has ended (${why}). Make a new one.`, {
    session_id: id,
    ...(reason !== null && { reason }),
    ...(error && { error }),
  });
}

/** Sessions as the API shows them. */
export async function toSessions(deps: ClientDeps, rows: SessionRow[]): Promise<Session[]> {
  const busy = await busySessions(
    deps.db,
    rows.map(({ id }) => id),
  );
  return Promise.all(
    rows.map(async (row) => ({
      ...toSession(row, busy.has(row.id)),
      ...(row.status === "queued" && { message: await explainWait(deps, row) }),
      ...ofTenant(deps.db, row),
    })),
  );
}

export async function describeSession(deps: ClientDeps, row: SessionRow): Promise<Session> {
  const [session] = await toSessions(deps, [row]);
  return session!;
}

function toSession(row: SessionRow, busy: boolean): Session {
  return {
    session_id: row.id,
    status: row.status,
    busy,
    reason: row.reason,
    error: row.error,
    job_type: row.jobType,
    job_version: row.jobVersion,
    requirements: row.requirements,
    contexts: [defaultContext, ...row.contexts],
    calls: row.calls,
    created_at: timestamp(row.createdAt),
    started_at: optionalTimestamp(row.startedAt),
    ready_at: optionalTimestamp(row.readyAt),
    used_at: optionalTimestamp(row.usedAt),
    ended_at: optionalTimestamp(row.endedAt),
    expires_at: timestamp(row.expiresAt),
    idle_timeout: row.idleTimeoutS,
    python_version: row.pythonVersion,
    container_backend: row.containerBackend,
    container_runtime: row.containerRuntime,
    ...(row.metadata && { metadata: row.metadata }),
  };
}

async function explainWait(deps: ClientDeps, { jobType }: SessionRow): Promise<string> {
  const { config, db, now } = deps;
  const [environment, known, builds] = await Promise.all([
    readEnvironment(deps, jobType),
    listAgents(db),
    openBuilds(db),
  ]);
  if (!environment) return `Job type ${jobType} is not configured any more: delete the session.`;
  const isBeingBuilt = builds.some((build) => build.jobType === jobType);
  return whyNobodyHolds(environment, known, config, now(), isBeingBuilt);
}
