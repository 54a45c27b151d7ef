import type { CallRequest } from "../../shared/wire/client/session.ts";
import type { ExecuteRequest, SubmittedJob } from "../../shared/wire/client/submission.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ClientDeps } from "../deps.ts";
import { resolveJobType } from "../domain/job-types.ts";
import { neededFor } from "../domain/submission.ts";
import { AppError, notFound, unavailable } from "../errors.ts";
import { fileFinder, type FoundFiles } from "../files/input-files.ts";
import { newExecution, type Origin } from "../jobs/new-execution.ts";
import { databaseFull } from "../jobs/refusals.ts";
import { storeSubmission } from "../jobs/submit.ts";
import { quotaExceeded } from "../quota.ts";
import { type NewExecution, submittedBytes } from "../store/jobs/submit.ts";
import type { TenantRow } from "../store/tenants.ts";
import type { SessionRow } from "../store/sessions/sessions.ts";
import { requireSession, sessionEnded } from "./read-session.ts";
import { wakeForCall } from "./tell-session.ts";

/**
 * Stores a call of a session, and wakes its agent. It may wait for the session to be ready.
 *
 * @param files Files of which the request says nothing.
 * @throws AppError 404 when the session or the context is unknown; 409 when it has ended, or the idempotency key has
 *   another payload; 422 when the timeout or the files are above their limits; 429 when a limit of the tenant is
 *   reached; 503 when too many of its calls wait.
 */
export async function submitCall(
  deps: ClientDeps,
  sessionId: string,
  call: CallRequest,
  origin: Origin,
  { kind, files }: { kind?: "files"; files?: FoundFiles["rows"] } = {},
): Promise<SubmittedJob> {
  const session = await requireSession(deps, sessionId);
  const found = await foundFiles(deps, call, files);
  const execution = await newCall(deps, session, call, origin, found);
  const obstacle = found.problem ?? (await databaseFull(deps));
  return storeSubmission(deps, { ...execution, kind }, origin, {
    most: obstacle ? 0 : limits.callsQueuedMax,
    whyFull: async (full) => obstacle ?? whyFull(deps, execution, session, full),
    wake: () => wakeForCall(deps, session),
  });
}

async function foundFiles(
  deps: ClientDeps,
  { files: asked = [] }: CallRequest,
  rows?: FoundFiles["rows"],
): Promise<FoundFiles> {
  if (rows) return { rows, identities: rows.map(({ name, sha256 }) => ({ name, sha256 })) };
  const found = await fileFinder(deps)(asked);
  const toWork = new Set(asked.filter(({ to }) => to === "work").map(({ name }) => name));
  return { ...found, rows: found.rows.map((row) => ({ ...row, toWork: toWork.has(row.name) })) };
}

async function newCall(
  deps: ClientDeps,
  session: SessionRow,
  call: CallRequest,
  origin: Origin,
  files: FoundFiles,
): Promise<NewExecution> {
  const jobType = resolveJobType(deps.config, session.jobType);
  if (!jobType) {
    const detail = `Job type ${session.jobType} is not configured any more: end the session.`;
    throw new AppError("conflict", detail, { session_id: session.id });
  }
  const { code = "", context, restart, env, fetch, files: _files, ...common } = call;
  const request: ExecuteRequest = {
    ...common,
    code,
    job_type: session.jobType,
    requirements: [],
    startup_timeout: session.startupTimeoutS,
    ...(call.command === undefined && { results: true }),
  };
  if (neededFor(request, files.rows, jobType) === "mount") {
    const detail = `The files of a call may have together at most a quarter of the memory_limit of job type ${jobType.name} (${jobType.memory_limit}).`;
    throw new AppError("files_too_large", detail, { session_id: session.id });
  }
  const { idempotency_key: _key, files: _given, ...payload } = call;
  const identity = [session.id, payload, files.identities];
  return {
    ...(await newExecution(deps, request, origin, jobType, files, identity)),
    sessionId: session.id,
    context,
    maxAttempts: 1,
    callOptions: {
      ...(restart && { restart }),
      ...(Object.keys(env).length > 0 && { env }),
      ...(fetch.length > 0 && { fetch }),
    },
  };
}

async function whyFull(
  deps: ClientDeps,
  execution: NewExecution,
  { id }: SessionRow,
  refused: { tenant: TenantRow | undefined },
): Promise<AppError> {
  const session = await requireSession(deps, id);
  if (session.status === "ended") return sessionEnded(session);
  const { context = "" } = execution;
  if (context !== "default" && !session.contexts.includes(context ?? "")) {
    return notFound(`Context ${context} of session ${id}`, { session_id: id });
  }
  const more = { jobs: 0, calls: 1, bytes: submittedBytes(execution) };
  const full = `Session ${id} has ${limits.callsQueuedMax} calls that wait: send it more when some have run.`;
  return (await quotaExceeded(deps, more, refused)) ?? unavailable(full, 1);
}
