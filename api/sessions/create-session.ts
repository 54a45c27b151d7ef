import { canonicalJson } from "../../shared/json.ts";
import type { SessionRequest } from "../../shared/wire/client/session.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Origin, runnableEnvironment, tooLong, wrongField } from "../jobs/new-execution.ts";
import { databaseFull } from "../jobs/refusals.ts";
import { quotaExceeded } from "../quota.ts";
import { createSession, sessionBytes } from "../store/sessions/create-session.ts";
import type { SessionRow } from "../store/sessions/sessions.ts";

/**
 * Queues a session, and wakes the agents that may take it. Without an agent, it waits.
 *
 * @throws AppError 400 when the job type is unknown, must be built first or needs GPUs; 409 when the idempotency
 *   key has another payload; 422 when the lifetime is too long; 429 when the tenant has too many sessions or
 *   stores too much; 503
 *   when the database is full.
 */
export async function makeSession(
  deps: ClientDeps,
  { wait: _wait, idempotency_key: key, ...request }: SessionRequest,
  { keyId, correlationId, clientIp, traceparent }: Omit<Origin, "mode">,
): Promise<SessionRow> {
  const { config, db, newId, now, sha256, notifier } = deps;
  checkLifetime(deps, request.lifetime);
  const { jobType } = await runnableEnvironment(deps, request.job_type);
  if (jobType.gpus > 0) {
    throw wrongField("job_type", "must be one without GPUs: sessions have none");
  }
  const full = await databaseFull(deps);
  const createdAt = now();
  const submissionHash = await sha256(canonicalJson(["session", request]));
  const session = {
    id: newId(),
    jobType: request.job_type,
    requirements: request.requirements,
    startupTimeoutS: request.startup_timeout,
    env: request.env,
    createdAt,
    expiresAt: createdAt + request.lifetime * 1000,
    idleTimeoutS: request.idle_timeout,
    metadata: request.metadata ?? null,
    idempotencyKey: key ?? null,
    submissionHash,
    keyId: keyId ?? null,
    correlationId,
    clientIp,
    traceparent: traceparent ?? null,
  };
  const most = config.max_sessions_per_tenant;
  const made = await createSession(db, session, full ? 0 : most);
  if (made.kind === "full") {
    const more = { jobs: 0, bytes: sessionBytes(session) };
    throw full ?? (await quotaExceeded(deps, more)) ?? tooManySessions(db.tenant, most);
  }
  if (made.kind === "created") notifier.notify("queue");
  else if (made.session.submissionHash !== submissionHash) throw keyTaken(made.session);
  return made.session;
}

/** @throws AppError 422 when a session may not live for so many seconds. */
export function checkLifetime({ config }: Pick<ClientDeps, "config">, lifetimeS: number): void {
  if (lifetimeS <= config.max_session_lifetime) return;
  throw tooLong("lifetime", lifetimeS, "max_session_lifetime", config);
}

function tooManySessions(tenant: string, most: number): AppError {
  const detail = `Tenant ${tenant} has ${most} sessions (max_sessions_per_tenant): end one first.`;
  return new AppError("too_many_sessions", detail, {}, { "Retry-After": "10" });
}

function keyTaken({ id }: SessionRow): AppError {
  const detail = `The idempotency key was used with a different payload, for session ${id}. Use a new key.`;
  return new AppError("conflict", detail, { session_id: id });
}
