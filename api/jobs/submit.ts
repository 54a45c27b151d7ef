import { and, lt, sql, type SQL } from "drizzle-orm";
import type { Config } from "../../shared/config/config.ts";
import { canonicalJsonInPieces, writeJsonInPieces } from "../../shared/json.ts";
import { nearest } from "../../shared/names.ts";
import type { ExecutionStatus, relationships } from "../../shared/wire/executions.ts";
import type { JobType } from "../../shared/wire/job-types.ts";
import type { ExecuteRequest, SubmittedJob } from "../../shared/wire/submissions.ts";
import { listAgents } from "../agents/fleet.ts";
import { isRunnable, notBuilt } from "../agents/placement.ts";
import type { ClientDeps, Deps } from "../deps.ts";
import { AppError, unavailable, wrongField } from "../errors.ts";
import { fileFinder, type FoundFiles } from "../files/files.ts";
import { catalogue } from "../images/sql.ts";
import { insertWhere, isStoreOutage, rideOut } from "../store/database.ts";
import {
  type CallOptions,
  dayOf,
  executions,
  payloads,
  queueLength,
  tenants,
  tombstones,
} from "../store/schema.ts";
import { given, query } from "../store/statement.ts";
import {
  type AnyDb,
  batch,
  databaseBytes,
  type Owner,
  perTenant,
  type TenantStatement,
} from "../store/tenant.ts";
import { columnsOfTenant, decodeTenant, isCpuUsed, type TenantRow } from "../tenants/sql.ts";
import { quotaExceeded } from "../tenants/tenants.ts";
import { isAllowedCallback } from "../webhooks/rules.ts";
import {
  attemptsOf,
  type Environment,
  identityOf,
  jobTypeNames,
  languagesOf,
  neededFor,
  type ProgramChoice,
  programOf,
  resolveProgram,
  type ToolChoice,
  toolsOf,
} from "./environment.ts";
import { checkAvailability, readEnvironment, timestamp } from "./read.ts";
import {
  bytesOf,
  callsWaiting,
  findExecution,
  insertFiles,
  type NewInputFile,
  nextCall,
  nextTurn,
  position,
  positionOfCall,
  queuePosition,
  takesCall,
} from "./sql.ts";

/**
 * Stores a submission and wakes an agent. When this resolves, the execution survives a crash.
 *
 * @param inherited Files of an earlier execution, instead of the request's.
 * @throws AppError 400 when the job type is unknown or must be built first; 409 when the idempotency key
 *   has another payload or its job was removed; 422 when the timeout is above `max_timeout`; 429 when a
 *   limit of the tenant is reached; 503 when the queue is full or no
 *   agent can run it. A 503 that names no job has stored nothing.
 */
export async function submit(
  deps: ClientDeps,
  request: ExecuteRequest,
  origin: Origin,
  inherited?: NewInputFile[],
): Promise<SubmittedJob> {
  const { config } = deps;
  // Asked together: they may share a request to the database's server.
  const [environment, known] = await Promise.all([
    runnableEnvironment(deps, request.job_type),
    listAgents(deps.db),
  ]);
  const files: FoundFiles =
    inherited || !request.files?.length
      ? { identities: [], rows: inherited ?? [] }
      : await fileFinder(deps)(request.files);
  const execution = await newExecution(deps, request, origin, environment.jobType, files);
  // An obstacle (below: queue size 0) keeps out new executions; a repeated submission still finds its job.
  const { refusal, wait } = await checkAvailability(deps, origin.mode, environment, {
    inputs: execution.inputs ?? null,
    language: execution.program?.language,
    known,
  });
  const obstacle = files.problem ?? refusal ?? (await databaseFull(deps));
  return storeSubmission(deps, execution, origin, {
    most: obstacle ? 0 : config.max_queue_size,
    whyFull: async (full) => {
      const more = { jobs: 1, bytes: submittedBytes(execution) };
      return (
        obstacle ?? (await quotaExceeded(deps, more, full)) ?? queueFull(config.max_queue_size)
      );
    },
    announce: () =>
      execution.availableAt <= deps.now() ? deps.notifier.announce?.(execution.jobType) : undefined,
    wake: () => notifyAt(deps, execution),
    wait,
  });
}

interface Place {
  /** Executions that may wait where this one waits. */
  most: number;
  whyFull: (full: Extract<Submitted, { kind: "full" }>) => Promise<AppError>;
  /** Called while the execution is being stored. What it returns is called once it is stored, instead of `wake`. */
  announce?: () => (() => void) | undefined;
  /** Wakes whoever can take it. */
  wake: () => unknown;
  /** Why it waits, if it waits for more than its turn. */
  wait?: string | undefined;
}

/** Stores an execution, or finds the one that has its idempotency key. */
export async function storeSubmission(
  deps: ClientDeps,
  execution: NewExecution,
  origin: Pick<Origin, "correlationId" | "watch">,
  { most, whyFull, announce, wake, wait }: Place,
): Promise<SubmittedJob> {
  origin.watch?.(execution.id, execution.startBy ?? undefined);
  const storing = submitExecution(deps.db, execution, most);
  const isStored = most > 0 ? announce?.() : undefined;
  const stored = await storing.catch((error: unknown) => findSubmission(deps, execution.id, error));
  switch (stored.kind) {
    case "full":
      throw await whyFull(stored);
    case "removed":
      throw idempotencyConflict(stored.id, "was used for job {id}, which was removed");
    case "existing":
      return existingJob(deps, stored, execution.submissionHash, origin, wait);
    case "accepted": {
      (isStored ?? wake)();
      const { id, createdAt } = execution;
      const { queuePosition } = stored;
      const standing = { id, status: "queued", createdAt, queuePosition } as const;
      return toSubmitted(standing, wait, origin.correlationId);
    }
  }
}

/** Where an execution stands. */
export interface Standing {
  id: string;
  status: ExecutionStatus;
  createdAt: number;
  queuePosition: number;
}

/** The answer to a submission. `wait` says why the job waits, if it waits for more than its turn. */
export function toSubmitted(
  { id, status, createdAt, queuePosition }: Standing,
  wait: string | undefined,
  correlationId: string,
): SubmittedJob {
  return {
    job_id: id,
    status,
    created_at: timestamp(createdAt),
    queue_position: queuePosition,
    ...(status === "queued" && wait !== undefined && { message: wait }),
    correlation_id: correlationId,
  };
}

/** A commit whose answer was lost may have succeeded. Looks for the job once the database answers again. */
async function findSubmission(deps: ClientDeps, id: string, error: unknown): Promise<Submitted> {
  if (!isStoreOutage(error)) throw error;
  const job = await rideOut(deps, () => findExecution(deps.db, id)).catch(() => {
    const detail = `The database is unavailable for the moment. Job ${id} may be stored: look at it before you send the request again.`;
    throw unavailable(detail, 5, { jobId: id, cause: error });
  });
  if (!job) throw error;
  return { kind: "accepted", queuePosition: await queuePosition(deps.db, job) };
}

async function existingJob(
  { db }: ClientDeps,
  existing: { id: string; submissionHash: string },
  submissionHash: string,
  { correlationId }: Pick<Origin, "correlationId">,
  wait: string | undefined,
): Promise<SubmittedJob> {
  const job = await findExecution(db, existing.id);
  if (existing.submissionHash !== submissionHash || !job) {
    throw idempotencyConflict(existing.id, "was used with a different payload, for job {id}");
  }
  return toSubmitted({ ...job, queuePosition: await queuePosition(db, job) }, wait, correlationId);
}

/** Origin of a submission. */
export interface Origin {
  mode: "sync" | "async";
  correlationId: string;
  clientIp: string;
  keyId?: string | undefined;
  traceparent?: string | undefined;
  /** Called before the execution is stored, with its id, and when it ends unless it is leased: no wake-up tells that. */
  watch?: ((id: string, startBy?: number) => void) | undefined;
  lineage?: { parentExecutionId: string; relationship: (typeof relationships)[number] };
}

/** @throws AppError 400 when the job type is unknown or must be built first. */
export async function runnableEnvironment(deps: ClientDeps, name: string): Promise<Environment> {
  const environment = await readEnvironment(deps, name);
  if (!environment) throw await unknownJobType(deps, name);
  if (!isRunnable(environment) && !environment.buildsItself) {
    const message = "must be built first";
    throw new AppError("invalid_request", notBuilt(environment), {
      errors: [{ path: "job_type", message }],
    });
  }
  return environment;
}

/**
 * @param identity Two submissions with the same idempotency key must have the same.
 * @throws AppError 422 when the timeout is above `max_timeout` or the job type has no such language; 400 when
 *   `callback_url` is not allowed, or fields are given that exclude each other.
 */
export async function newExecution(
  { config, newId, now, sha256 }: ClientDeps,
  request: ExecuteRequest,
  { mode, correlationId, clientIp, keyId, traceparent, lineage }: Origin,
  jobType: JobType,
  files: FoundFiles,
  identity: unknown = identityOf(request, lineage, files.identities),
): Promise<NewExecution> {
  const timeoutS = request.timeout ?? jobType.timeout;
  if (timeoutS > config.max_timeout) throw tooLong("timeout", timeoutS, "max_timeout", config);
  checkProgram(request, jobType);
  const tools = toolsOf(request);
  checkTools(request, config);
  const code = encode(request.code);
  const input = await writeJsonInPieces(request.input_data);
  const createdAt = now();
  const { stdin = "", args = [], metadata = {}, run_at, queue_timeout } = request;
  const { callback_url } = request;
  if (callback_url !== undefined) refuseOtherHosts(config, callback_url);
  const runAt = run_at === undefined ? undefined : Date.parse(run_at);
  const availableAt = Math.max(createdAt, runAt ?? 0);
  return {
    id: newId(),
    mode,
    jobType: request.job_type,
    timeoutS,
    startupTimeoutS: request.startup_timeout,
    requirements: request.requirements,
    availableAt,
    createdAt,
    code,
    input,
    stdin: stdin === "" ? undefined : encode(stdin),
    args: args.length === 0 ? undefined : args,
    program: programOf(request),
    tools,
    results: request.results === true || tools ? "all" : undefined,
    inputs: neededFor(request, files.rows, jobType) ?? undefined,
    files: files.rows,
    codeBytes: code.length,
    inputBytes: input.length,
    codeHash: await sha256(code),
    inputHash: await sha256(input),
    submissionHash: await sha256(await canonicalJsonInPieces(identity)),
    idempotencyKey: request.idempotency_key,
    correlationId,
    clientIp,
    keyId,
    priority: jobType.priority,
    metadata: Object.keys(metadata).length > 0 ? metadata : undefined,
    maxAttempts: attemptsOf(request),
    runAt,
    startBy: queue_timeout === undefined ? undefined : availableAt + queue_timeout * 1000,
    traceparent,
    callbackUrl: callback_url,
    ...lineage,
  };
}

function checkTools(request: ExecuteRequest, config: Config): void {
  const { results, max_attempts = 1, tool_timeout = 1 } = request;
  if (!toolsOf(request)) {
    if (request.tool_timeout === undefined) return;
    throw wrongField("tool_timeout", "is for a request with tools: leave it out");
  }
  if (results === false) {
    throw wrongField("results", "cannot be false with tools: leave it out");
  }
  if (max_attempts !== 1) {
    throw wrongField("max_attempts", "must be 1 with tools, as it is without the field");
  }
  if (tool_timeout > config.max_timeout)
    throw tooLong("tool_timeout", tool_timeout, "max_timeout", config);
}

/** The refusal of a field that is above the configuration key `limit`. */
export function tooLong(
  path: string,
  seconds: number,
  limit: "max_timeout" | "max_session_lifetime",
  { [limit]: most }: Config,
): AppError {
  return new AppError(
    "timeout_too_long",
    `${path}: ${seconds} s is above the configured ${limit} of ${most} s.`,
    { errors: [{ path, message: `must be at most ${most}` }] },
  );
}

function checkProgram(request: ExecuteRequest, jobType: JobType): void {
  const { language, command, compile_command, requirements } = request;
  if (language !== undefined && command !== undefined) {
    throw wrongField("command", "cannot be used with language: send one of them");
  }
  if (compile_command !== undefined && command === undefined) {
    throw wrongField("compile_command", "is the compiler of a command: send command too");
  }
  const program = programOf(request);
  if (program === undefined) return;
  const pythonOnly = {
    results: request.results === true,
    tools: toolsOf(request) !== undefined,
    requirements: requirements.length > 0,
  };
  for (const [field, isGiven] of Object.entries(pythonOnly)) {
    if (!isGiven) continue;
    const advice = "are for Python only: leave them out with another language or a command";
    throw wrongField(field, advice);
  }
  if (resolveProgram(program, jobType) !== undefined) return;
  const known = ["python", ...Object.keys(languagesOf(jobType))].sort();
  const meant = nearest(language ?? "", known);
  throw new AppError(
    "language_unavailable",
    `language: job type ${jobType.name} has no language ${JSON.stringify(language)}${meant === undefined ? "" : `: did you mean ${JSON.stringify(meant)}?`}`,
    { errors: [{ path: "language", message: `must be one of: ${known.join(", ")}` }] },
  );
}

/** @throws AppError 400 when no host of `webhook_callbacks` allows the address. */
function refuseOtherHosts({ webhook_callbacks: callbacks }: Config, url: string): void {
  if (callbacks && isAllowedCallback(url, callbacks.hosts)) return;
  const message = `${new URL(url).origin} is not one of the allowed hosts: ask the operator of this service to add it (webhook_callbacks)`;
  throw wrongField("callback_url", message);
}

async function unknownJobType(deps: ClientDeps, name: string): Promise<AppError> {
  const known = jobTypeNames(await catalogue(deps), deps.db.tenant);
  const meant = nearest(name, known);
  const hint = meant === undefined ? "." : `: did you mean ${JSON.stringify(meant)}?`;
  const detail = `job_type: no job type is named ${JSON.stringify(name)}${hint}`;
  return new AppError("invalid_request", detail, {
    errors: [{ path: "job_type", message: `must be one of: ${known.join(", ")}` }],
  });
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Refuses new submissions only: stored jobs still run, and their results are accepted. */
export async function databaseFull({ config, db }: ClientDeps): Promise<AppError | undefined> {
  const most = config.max_database_bytes;
  if (most === 0 || (await databaseBytes(db)) < most) return undefined;
  const detail = `The database has reached max_database_bytes (${most}): let old executions go (execution_retention_days), or allow it more.`;
  return unavailable(detail, 60);
}

export function queueFull(maxQueueSize: number): AppError {
  return unavailable(`The queue is full (max_queue_size ${maxQueueSize}).`, 5);
}

/** The refusal of an idempotency key. `what` says why, with `{id}` for its job. */
export function idempotencyConflict(id: string, what: string): AppError {
  const detail = `The idempotency key ${what.replace("{id}", id)}. Use a new key.`;
  return new AppError("conflict", detail, { existing_job_id: id, job_id: id });
}

/** Somebody looks for what waits every few seconds anyway, so a timer for a later job need not survive a restart. */
const longestTimerMs = 10_000;

/** Wakes an agent when a job may start. */
export function notifyAt(
  { notifier, now }: Pick<Deps, "notifier" | "now">,
  { availableAt, jobType }: Pick<NewExecution, "availableAt" | "jobType">,
): void {
  const delayMs = availableAt - now();
  if (delayMs <= longestTimerMs) notifier.notify("job", Math.max(0, delayMs), jobType);
}

export type NewExecution = Omit<
  typeof executions.$inferInsert,
  "turn" | "rank" | "call" | "submittedBytes" | "outputBytes"
> & {
  code: Uint8Array;
  input: Uint8Array;
  stdin?: Uint8Array | undefined;
  args?: string[] | undefined;
  program?: ProgramChoice | undefined;
  tools?: ToolChoice | undefined;
  files?: NewInputFile[] | undefined;
  /** Of a call, beside its `sessionId` and `context`. */
  callOptions?: CallOptions | undefined;
  /** Priority of its job type: number of turns by which it moves forward; default 0. */
  priority?: number;
};

type Submitted =
  /** The position of a synchronous job is 0: nobody is told of it. */
  | { kind: "accepted"; queuePosition: number }
  | { kind: "existing"; id: string; submissionHash: string }
  /** The job that had the idempotency key was removed. */
  | { kind: "removed"; id: string }
  /**
   * The queue is full, or a limit of the tenant is reached; `tenant` is its row at that moment. For a call: its session
   * has ended, or too many calls wait in it.
   */
  | { kind: "full"; tenant: TenantRow | undefined };

/**
 * Stores a queued execution with its payload in one transaction, unless its queue (a call's: that of its session) is
 * full, a limit of its tenant is reached, or its idempotency key is taken. When this resolves, the execution survives a
 * crash.
 */
export async function submitExecution(
  db: AnyDb,
  submitted: NewExecution,
  maxQueueSize: number,
): Promise<Submitted> {
  const { code, input, stdin, args, program, tools, callOptions, ...rest } = submitted;
  const { files = [], priority = 0, ...execution } = rest;
  const key = execution.idempotencyKey ?? null;
  const { id, tenant = "default", createdAt, sessionId = null } = execution;
  const row = { ...execution, tenant, submittedBytes: submittedBytes(submitted) };
  const insert = [
    insertOf(row, key !== null)({ ...row, priority, maxQueueSize, day: dayOf(createdAt) }),
    insertPayload({
      tenant,
      id,
      code,
      input,
      stdin: stdin ?? null,
      args: args ?? null,
      program: program ?? null,
      tools: tools ?? null,
      call: callOptions ?? null,
    }),
    ...insertFiles(id, files, tenant),
  ];
  if (execution.mode === "sync") {
    // The client is not told a position. What keeps a job out is told by the second try, which asks for it.
    const [stored] = await batch(db, insert);
    if (stored?.rowsAffected === 1) return { kind: "accepted", queuePosition: 0 };
  }
  const standingOfIt =
    sessionId === null
      ? positionInQueue({ tenant, id, most: countedMost })
      : positionInSession({ tenant, id });
  const results = await batch(db, [
    ...insert,
    standingOfIt,
    ...(key === null ? [] : [holderOfKey({ tenant, idempotencyKey: key })]),
  ]);
  const [inserted] = results;
  const [standing, holder] = results.slice(insert.length);
  if (inserted?.rowsAffected === 1) {
    return { kind: "accepted", queuePosition: Number(standing?.rows[0]?.["position"]) };
  }
  const existing = key === null ? undefined : holder?.rows[0];
  if (!existing) return { kind: "full", tenant: decodeTenant(standing?.rows[0]) };
  const [existingId, submissionHash] = [existing[0] as string, existing[1] as string | null];
  return submissionHash === null
    ? { kind: "removed", id: existingId }
    : { kind: "existing", id: existingId, submissionHash };
}

const encoder = new TextEncoder();
const jsonBytes = (value: unknown): number => encoder.encode(JSON.stringify(value)).length;

/** Bytes of a submission that are stored: see the column. */
export function submittedBytes(execution: NewExecution): number {
  const { code, input, stdin, args, tools, callOptions, files = [], metadata } = execution;
  const { requirements } = execution;
  // The environment of a call goes with its end.
  const kept = callOptions && { ...callOptions, env: undefined };
  const needed = requirements.length > 0 && requirements;
  const inJson = [args, tools, kept, metadata, needed].filter(Boolean);
  return (
    bytesOf(code, input, stdin, ...files.map(({ content }) => content)) +
    inJson.reduce<number>((sum, value) => sum + jsonBytes(value), 0)
  );
}

const queued = query.select({ n: queueLength.queued }).from(queueLength);
/** The row of the tenant, and the position of the execution if it was inserted. */
const standingOf = (place: (own: Owner) => SQL) =>
  perTenant(
    (own) => sql`select ${columnsOfTenant}, (${place(own)}) as position
      from (select 1) left join ${tenants} on ${own(tenants)}`,
  );
const positionInQueue = standingOf(position);
const positionInSession = standingOf(positionOfCall);
/** A higher position is given as the number of the tenant's waiting executions: a submission must not count a long queue. */
const countedMost = 100;
/** Finds the execution that has an idempotency key, or had it until it was removed (then without its hash). */
export const holderOf = (own: Owner, key: SQL): SQL => sql`
  select ${executions.id} as holder_id, ${executions.submissionHash} as submission_hash
  from ${executions}
  where ${own(executions)} and ${executions.idempotencyKey} = ${key}
  union all select ${tombstones.executionId}, null from ${tombstones}
  where ${own(tombstones)} and ${tombstones.idempotencyKey} = ${key}`;

const selectHolder = (own: Owner) => holderOf(own, sql`${given("idempotencyKey")}`);
const holderOfKey = perTenant(selectHolder);

const inserts = new Map<string, TenantStatement>();

/** The guarded insert of a row with these columns. */
function insertOf(values: Readonly<Record<string, unknown>>, hasKey: boolean): TenantStatement {
  const columns = Object.keys(values).filter((column) => values[column] !== undefined);
  const name = columns.join();
  const known = inserts.get(name);
  if (known) return known;
  const filled = columns.map((column) => [column, given(column)] as const);
  const isCall = columns.includes("sessionId");
  const { queued: its, maxQueued, storedBytes, maxStoredBytes } = tenants;
  const isQueueFull = isCall ? sql`0` : sql`${its} >= ${maxQueued}`;
  const isFull = sql`(${isQueueFull} or ${isCpuUsed}
    or ${storedBytes} + ${given("submittedBytes")} > ${maxStoredBytes})`;
  const made = perTenant((own) => {
    const place = isCall ? { call: nextCall(own) } : placeInLine;
    const row = { ...Object.fromEntries(filled), tenant: own.tenant, ...place };
    const length = isCall ? callsWaiting(own) : sql`(${queued})`;
    const hasRoom = lt(length, given("maxQueueSize"));
    const hasQuota = sql`not exists (select 1 from ${tenants} where ${own(tenants)} and ${isFull})`;
    const isKeyFree = hasKey ? sql`not exists (${selectHolder(own)})` : undefined;
    const isTaken = isCall ? takesCall(own) : undefined;
    const condition = and(hasRoom, hasQuota, isKeyFree, isTaken);
    return insertWhere(executions, row as never, condition, isCall ? undefined : lineOf(own));
  });
  inserts.set(name, made);
  return made;
}

const placeInLine = {
  turn: sql`line.turn`,
  rank: sql`line.turn - ${given("priority")}`,
};
/** The limit has SQLite look for the turn once, not once for each mention. */
const lineOf = (own: Owner): SQL =>
  sql`from (select ${nextTurn(own, sql`${given("jobType")}`)} as turn limit 1) as line`;

const submittedColumns = ["code", "input", "stdin", "args", "program", "tools", "call"].map(
  (name) => [name, given(name)] as const,
);
/** `changes()` is of the statement before it, which inserts the execution or does not. */
const insertPayload = perTenant((own) =>
  insertWhere(
    payloads,
    { executionId: given("id"), ...Object.fromEntries(submittedColumns) } as never,
    sql`changes() > 0 ${own.anybody(payloads, "of the execution that was just made")}`,
  ),
);
