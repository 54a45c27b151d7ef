import { z } from "zod";
import { decodeUtf8 } from "../../shared/bytes.ts";
import { canonicalJson } from "../../shared/json.ts";
import { whyNotFileName } from "../../shared/wire/files.ts";
import { limits } from "../../shared/wire/limits.ts";
import {
  callDefaults,
  type CallRequest,
  defaultContext,
  type Session,
  SessionFile,
  type SessionPatch,
  type SessionRequest,
} from "../../shared/wire/sessions.ts";
import type { ExecuteRequest, SubmittedJob } from "../../shared/wire/submissions.ts";
import { listAgents } from "../agents/fleet.ts";
import { whyNobodyHolds } from "../agents/placement.ts";
import { backstopMs, type ClientDeps } from "../deps.ts";
import { AppError, notFound, unavailable, wrongField } from "../errors.ts";
import { fileFinder, type FoundFiles } from "../files/files.ts";
import { contentTypeOf } from "../files/rules.ts";
import { catalogue, openBuilds } from "../images/sql.ts";
import { neededFor, openBuildOf, resolveJobType } from "../jobs/environment.ts";
import { optionalTimestamp, readEnvironment, timestamp } from "../jobs/read.ts";
import type { FullExecution } from "../jobs/sql.ts";
import {
  databaseFull,
  newExecution,
  type NewExecution,
  type Origin,
  runnableEnvironment,
  storeSubmission,
  submittedBytes,
  tooLong,
} from "../jobs/submit.ts";
import { cancelUnlessEnded, waitForSync } from "../jobs/wait.ts";
import { ofTenant } from "../store/tenant.ts";
import { type Actor, audited, type TenantRow } from "../tenants/sql.ts";
import { quotaExceeded } from "../tenants/tenants.ts";
import { tellSession, wakeForCall } from "./lease.ts";
import {
  addContext,
  advanceSession,
  busySessions,
  changeSession,
  createSession,
  findRunningCall,
  findSession,
  idleAt,
  removeContext,
  sessionBytes,
  type SessionRow,
} from "./sql.ts";

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
  if (made.kind === "created") notifier.notify("session", 0, request.job_type);
  else if (made.session.submissionHash !== submissionHash) throw keyTaken(made.session);
  return made.session;
}

/** @throws AppError 422 when a session may not live for so many seconds. */
function checkLifetime({ config }: Pick<ClientDeps, "config">, lifetimeS: number): void {
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

/** When time ends a session: at the end of its lifetime, or of its idle timeout unless a call waits or runs then. */
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
  return whyNobodyHolds(environment, known, config, now(), openBuildOf(environment, builds));
}

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
  const call = await findRunningCall(deps.db, { id });
  return call && (await cancelUnlessEnded(deps, call.id)) ? call.id : null;
}

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
  const jobType = resolveJobType(await catalogue(deps), session.jobType);
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

/**
 * Files of a session, read and written by calls of kind `files`, in the order of calls. Programs of the image do it
 * inside the sandbox, as the code's user: whatever the code has made of /output, they reach nothing else.
 */

/** Who asks, and how long. */
export interface Asking {
  deps: ClientDeps;
  id: string;
  origin: Omit<Origin, "mode">;
  signal: AbortSignal;
}

/** @throws AppError 400 unless it is a path below /output. */
export function checkPath(path: string): void {
  const fault = whyNotFileName(path, "work");
  if (fault !== undefined) throw wrongField("path", fault);
}

/** Writes a file, and the folders of its path. */
export async function writeFile(asking: Asking, path: string, content: Uint8Array): Promise<void> {
  const sha256 = await asking.deps.sha256(content);
  const bytes = { content, sizeBytes: content.length, sha256, storeKey: null, owner: null };
  const file = { ...bytes, name: path, contentType: contentTypeOf(path), toWork: true };
  refuseUnlessDone(path, await runCall(asking, {}, [file]));
}

/** An execution that has brought a file as its one artifact. */
export async function fetchFile(asking: Asking, path: string): Promise<FullExecution> {
  const done = await runCall(asking, { fetch: [path] });
  refuseUnlessDone(path, done);
  if (done.artifacts.length > 0) return done;
  const { warnings } = done.execution;
  const why = warnings ? ` ${warnings.join(" ")}` : "";
  throw new AppError("not_found", `${path} is no file of session ${asking.id}.${why}`, {
    session_id: asking.id,
  });
}

export async function removeFile(asking: Asking, path: string): Promise<void> {
  const done = await runCall(asking, { command: python(removal, path) });
  refuseMissing(asking, path, done);
  refuseUnlessDone(path, done);
}

/** What a folder has, ordered by name; at most a thousand entries. */
export async function listFolder(asking: Asking, path: string): Promise<SessionFile[]> {
  const done = await runCall(asking, { command: python(listing, path) });
  refuseMissing(asking, path, done);
  refuseUnlessDone(path, done);
  const found = Entries.safeParse(parsed(done.payload.stdout));
  if (!found.success) throw broken(path, done, "its listing cannot be read");
  return found.data.map(([name, type, size_bytes, modifiedAt]) => ({
    path: (path === "" ? name : `${path}/${name}`).toWellFormed(),
    type,
    size_bytes,
    modified_at: timestamp(modifiedAt),
  }));
}

const Entries = z.array(
  z.tuple([z.string(), SessionFile.shape.type, z.int().min(0), z.int().min(0).max(8.64e15)]),
);

function parsed(stdout: Uint8Array | null): unknown {
  try {
    return JSON.parse(decodeUtf8(stdout ?? new Uint8Array()));
  } catch {
    return undefined;
  }
}

const missing = 44;
const python = (program: string, path: string) => ["python3", "-I", "-c", program, path];

const listing = `import json, os, sys
try:
    entries = sorted(os.scandir(sys.argv[1] or "."), key=lambda entry: entry.name)
except (FileNotFoundError, NotADirectoryError):
    sys.exit(${missing})
items = []
for entry in entries[:1000]:
    found = entry.stat(follow_symlinks=False)
    is_folder = entry.is_dir(follow_symlinks=False)
    kind = "folder" if is_folder else "file" if entry.is_file(follow_symlinks=False) else "other"
    items.append([entry.name, kind, found.st_size, max(0, int(found.st_mtime * 1000))])
print(json.dumps(items))
`;

const removal = `import os, shutil, sys
path = sys.argv[1]
try:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
except FileNotFoundError:
    sys.exit(${missing})
`;

async function runCall(
  { deps, id, origin, signal }: Asking,
  call: Partial<CallRequest>,
  files: FoundFiles["rows"] = [],
): Promise<FullExecution> {
  // A read of the records of all tenants has no tenant whose call it could be.
  if (deps.db.tenant === "*") {
    throw new AppError(
      "invalid_request",
      "A file belongs to one tenant: name it in X-Airlock-Tenant.",
    );
  }
  const request = { ...callDefaults, ...call };
  const sync = { ...origin, mode: "sync" } as const;
  const { job_id } = await submitCall(deps, id, request, sync, { kind: "files", files });
  return waitForSync(deps, job_id, false, signal);
}

function refuseMissing({ id }: Asking, path: string, { execution }: FullExecution): void {
  if (execution.exitCode !== missing) return;
  throw notFound(`${path === "" ? "The folder" : path} of session ${id}`, { session_id: id });
}

/** @throws AppError 409 with the error of the call. */
function refuseUnlessDone(path: string, done: FullExecution): void {
  const { error } = done.execution;
  if (error) throw broken(path, done, error.message);
}

function broken(path: string, { execution }: FullExecution, why: string): AppError {
  const { id, sessionId, error } = execution;
  return new AppError("conflict", `${path === "" ? "/output" : path}: ${why}`, {
    job_id: id,
    ...(sessionId !== null && { session_id: sessionId }),
    ...(error && { error }),
  });
}

/**
 * Makes a context. Its interpreter starts with its first call.
 *
 * @throws AppError 409 when the session has ended, or has as many contexts as it may.
 */
export async function makeContext(deps: ClientDeps, id: string): Promise<string> {
  const context = deps.newId();
  if (await addContext(deps.db, { id, context })) return context;
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
  if (await removeContext(deps.db, { id, context })) return;
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
