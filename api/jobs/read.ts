import { decodeUtf8 } from "../../shared/bytes.ts";
import { type JsonObject, JsonText, parseJson, withoutMark, writeJson } from "../../shared/json.ts";
import {
  type Artifact,
  type Attempt,
  type ExecutionRecord,
  type ExecutionStatus,
  isTerminal,
  type JobStatus,
  type QueueStatus,
  type ResourceUsage,
  type ResultItem,
  type SyncResult,
  type ToolCall,
} from "../../shared/wire/executions.ts";
import type { InputWay } from "../../shared/wire/files.ts";
import { limits } from "../../shared/wire/limits.ts";
import { listAgents } from "../agents/fleet.ts";
import {
  givesInputs,
  isGone,
  isLive,
  takesNow,
  turnMessage,
  whyNoBuild,
  whyNobodyRuns,
  whyNobodyTakes,
  whyNoLanguage,
  whyUnavailable,
} from "../agents/placement.ts";
import type { ClientDeps, Deps } from "../deps.ts";
import { AppError, notFound, unavailable } from "../errors.ts";
import { builtImages, catalogue, openBuilds } from "../images/sql.ts";
import { findSession } from "../sessions/sql.ts";
import { type AnyDb, ofTenant } from "../store/tenant.ts";
import { findTenant } from "../tenants/sql.ts";
import {
  awaitsImage,
  type Environment,
  environment,
  environments,
  isFor,
  openBuildOf,
} from "./environment.ts";
import { type AttemptHistory, readAttempts } from "./lease.ts";
import {
  type ArtifactRow,
  type ItemRow,
  type LongColumn,
  longColumns,
  readResultPart,
  shownAfter,
  windowBytes,
} from "./output.ts";
import {
  emptyPayload,
  type Ended,
  type ExecutionRow,
  findExecution,
  type FullExecution,
  readQueueStats,
  withPayloads,
} from "./sql.ts";

/** @throws AppError 404 when it is unknown. `what` is its name in the message. */
export async function requireExecution(
  { db }: Pick<ClientDeps, "db">,
  id: string,
  what: "Job" | "Execution" = "Job",
): Promise<ExecutionRow> {
  const execution = await findExecution(db, id);
  if (!execution) throw notFound(`${what} ${id}`);
  return execution;
}

type Field = keyof ExecutionRecord;

/** Fields that are not in the row of an execution. */
const elsewhere: Field[] = [
  "stdin",
  "args",
  "language",
  "command",
  "compile_command",
  "compile_timeout",
  "tools",
  "tool_timeout",
  "compile",
  "results",
  "stdout",
  "stderr",
  "output",
  "artifacts",
  "input_artifacts",
];

/** The record of a row. */
export async function readRecord(
  db: AnyDb,
  row: ExecutionRow,
  view: View,
): Promise<ExecutionRecord> {
  const [record] = await readWhole(db, [row], view);
  return record!;
}

/** The records of rows; with `fields`, only these and the id. Reads payloads and attempts only if a field needs them. */
export async function readRecords(
  db: AnyDb,
  rows: ExecutionRow[],
  { view, fields }: { view?: View; fields?: Field[] | undefined },
): Promise<Partial<ExecutionRecord>[]> {
  if (!fields) return readWhole(db, rows, view);
  const full = elsewhere.some((field) => fields.includes(field))
    ? await withPayloads(db, rows, readAtOnceBytes)
    : rows.map((execution): FullExecution => ({
        execution,
        payload: emptyPayload,
        left: {},
        artifacts: [],
        inputFiles: [],
      }));
  const plain = full.map((one) => toRecord(one, "all"));
  const records = fields.includes("attempts") ? await withAttempts(db, plain) : plain;
  const wanted = new Set<string>(["execution_id", ...fields]);
  return records.map((record, at) =>
    withLongFields(db, full[at]!, {
      ...Object.fromEntries(Object.entries(record).filter(([field]) => wanted.has(field))),
      ...ofTenant(db, rows[at]!),
    }),
  );
}

async function readWhole(db: AnyDb, rows: ExecutionRow[], view: View): Promise<ExecutionRecord[]> {
  const full = await withPayloads(db, rows, readAtOnceBytes);
  const plain = full.map((one) => ({ ...toRecord(one, view), ...ofTenant(db, one.execution) }));
  const records = view === "all" ? await withAttempts(db, plain) : plain;
  return records.map((record, at) => withLongFields(db, full[at]!, record));
}

/** A larger column is read in parts while its record is sent: a client may take long, and send a hundred requests. */
export const readAtOnceBytes = 256 * 1024;
/** Bounds the parts in which a column is read, and how often: SQLite reads the whole column for each. */
const columnReads = { count: 16, mostBytes: 1024 * 1024 };

/** The JSON of a field that is read while it is sent. */
export interface LongField {
  read: () => AsyncIterable<string>;
  /** About how many of its bytes are in memory at once. */
  bytesAtOnce: number;
}

/** The long fields of each record or result. */
export const longFields = new WeakMap<object, Partial<Record<string, LongField>>>();

/** Returns a record or result whose fields that were left out are read while it is sent. */
export function withLongFields<T extends object>(
  db: AnyDb,
  { execution, left, items }: Pick<FullExecution, "execution" | "left" | "items">,
  record: T,
): T {
  const fields: Partial<Record<string, LongField>> = {};
  for (const name of longColumns) {
    const bytes = left[name];
    if (bytes !== undefined) fields[name] = longColumn(db, execution.id, name, bytes);
  }
  if (items === "left") {
    const read = () => readItems(db, execution);
    fields["results"] = { read, bytesAtOnce: limits.resultItemMaxBytes };
  }
  if (Object.keys(fields).length > 0) longFields.set(record, fields);
  return record;
}

function longColumn(db: AnyDb, id: string, column: LongColumn, bytes: number): LongField {
  const { count, mostBytes } = columnReads;
  const length = Math.min(Math.max(windowBytes, Math.ceil(bytes / count)), mostBytes);
  return { read: () => readColumn(db, id, column, { bytes, length }), bytesAtOnce: length };
}

async function* readColumn(
  db: AnyDb,
  id: string,
  column: LongColumn,
  { bytes, length }: { bytes: number; length: number },
): AsyncGenerator<string> {
  // `output` is JSON, which has no byte order mark.
  const isText = column !== "output";
  const decoder = new TextDecoder("utf-8", { ignoreBOM: isText });
  const toJson = (text: string): string => (isText ? JSON.stringify(text).slice(1, -1) : text);
  if (isText) yield '"';
  for (let offset = 0; offset < bytes;) {
    const part = await readResultPart(db, id, column, { offset, length });
    if (part.length === 0) throw wasRemoved(id);
    yield toJson(decoder.decode(part, { stream: true }));
    offset += part.length;
  }
  yield toJson(decoder.decode());
  if (isText) yield '"';
}

async function* readItems(db: AnyDb, { id, attempt }: ExecutionRow): AsyncGenerator<string> {
  let separator = "[";
  for (let number = 0; ;) {
    const rows = await shownAfter(db, { executionId: id, attempt, number });
    if (rows.length === 0) break;
    for (const row of rows) {
      yield separator + writeJson(toResultItem(row));
      separator = ",";
      number = row.number;
    }
  }
  if (separator === "[") throw wasRemoved(id);
  yield "]";
}

const wasRemoved = (id: string): Error =>
  new Error(`execution ${id} was removed while it was read`);

type View = "full" | "all" | undefined;

/** Names under which an execution's own code and input can be downloaded. */
export const internalArtifacts = { code: "_code.py", input: "_input.json" } as const;

/** Turns rows of the store into execution records, which `writeJson` writes: `output` is a `JsonText`. */
export function toRecord(full: FullExecution, view: View): ExecutionRecord {
  const { execution: e, payload } = full;
  return {
    execution_id: e.id,
    status: e.status,
    job_type: e.jobType,
    job_version: e.jobVersion,
    created_at: timestamp(e.createdAt),
    started_at: optionalTimestamp(e.startedAt),
    ended_at: optionalTimestamp(e.endedAt),
    duration_ms: e.endedAt === null || e.startedAt === null ? null : e.endedAt - e.startedAt,
    exit_code: e.exitCode,
    stdout: text(payload.stdout),
    stderr: text(payload.stderr),
    output: payload.output && outputOf(payload.output),
    error: e.error,
    timing: e.timing,
    ...(e.metadata && { metadata: e.metadata }),
    ...(full.items && { results: full.items === "left" ? [] : full.items.map(toResultItem) }),
    ...(e.results === "truncated" && { results_truncated: true }),
    ...(payload.compile && { compile: payload.compile }),
    ...(e.warnings && { warnings: e.warnings }),
    ...(e.batchId !== null && { batch_id: e.batchId }),
    ...ofCall(e),
    ...(view !== undefined && extendedFields(full)),
    ...(view === "all" && submissionFields(e)),
  };
}

function ofCall({ sessionId, call, context, kind }: ExecutionRow): Partial<ExecutionRecord> {
  if (sessionId === null || call === null || context === null) return {};
  return { session_id: sessionId, call, context, ...(kind && { kind }) };
}

function extendedFields({
  execution: e,
  payload,
  left,
  artifacts,
  inputFiles,
}: FullExecution): Partial<ExecutionRecord> {
  return {
    job_ref: e.jobRef,
    container_runtime: e.containerRuntime,
    artifacts: artifacts.map(toArtifact),
    input_artifacts: [...inputArtifacts(e), ...inputFiles.map(toArtifact)],
    resource_usage: usageOf(e),
    code_hash: e.codeHash,
    input_hash: e.inputHash,
    parent_execution_id: e.parentExecutionId,
    relationship: e.relationship,
    stdout_truncated: e.stdoutTruncated,
    stderr_truncated: e.stderrTruncated,
    idempotency_key: e.idempotencyKey,
    ...(e.containerBackend === "zygote" && { container_backend: e.containerBackend }),
    ...((payload.stdin || left.stdin) && { stdin: text(payload.stdin) }),
    ...(payload.args && { args: payload.args }),
    ...payload.program,
    ...payload.tools,
    ...(e.runAt !== null && { run_at: timestamp(e.runAt) }),
    ...(e.startBy !== null && { queue_timeout: queueTimeoutS(e, e.startBy) }),
    ...(e.maxAttempts < limits.maxAttempts && { max_attempts: e.maxAttempts }),
    ...(e.callbackUrl !== null && { callback_url: e.callbackUrl }),
    ...(e.traceparent !== null && { traceparent: e.traceparent }),
  };
}

const usageOf = ({ maxRssMb, cpuTimeMs, wallTimeMs }: ExecutionRow): ResourceUsage | null =>
  maxRssMb === null || cpuTimeMs === null || wallTimeMs === null
    ? null
    : { max_rss_mb: maxRssMb, cpu_time_ms: cpuTimeMs, wall_time_ms: wallTimeMs };

function submissionFields(e: ExecutionRow): Partial<ExecutionRecord> {
  return {
    attempt: e.attempt,
    correlation_id: e.correlationId,
    mode: e.mode,
    timeout: e.timeoutS,
    startup_timeout: e.startupTimeoutS,
    requirements: e.requirements,
  };
}

function queueTimeoutS({ createdAt, runAt }: ExecutionRow, startBy: number): number {
  return (startBy - Math.max(createdAt, runAt ?? 0)) / 1000;
}

export function inputArtifacts(e: ExecutionRow): Artifact[] {
  return [
    {
      name: internalArtifacts.code,
      size_bytes: e.codeBytes,
      sha256: e.codeHash,
      content_type: "text/x-python; charset=utf-8",
    },
    {
      name: internalArtifacts.input,
      size_bytes: e.inputBytes,
      sha256: e.inputHash,
      content_type: "application/json",
    },
  ];
}

export function toArtifact(row: Omit<ArtifactRow, "executionId" | "leaseId">): Artifact {
  return {
    name: row.name,
    size_bytes: row.sizeBytes,
    sha256: row.sha256,
    content_type: row.contentType,
  };
}

export function toResultItem({ number, main, data, stdoutAt, stderrAt }: ItemRow): ResultItem {
  const forms = JSON.parse(data) as ResultItem["data"];
  return { number, main, data: forms, stdout_at: stdoutAt, stderr_at: stderrAt };
}

export function toToolCall({ number, data, stdoutAt, stderrAt }: ItemRow): ToolCall {
  const call = parseJson(data, { depth: callDepthMax }) as Pick<ToolCall, "name" | "arguments">;
  return { number, ...call, stdout_at: stdoutAt, stderr_at: stderrAt };
}

/** A call with its answer, if it has one. */
export function toAnsweredToolCall(row: ItemRow): ToolCall {
  const call = toToolCall(row);
  if (row.answer === null) return call;
  const answer = row.isError
    ? { error: row.answer }
    : { result: parseJson(row.answer, { depth: callDepthMax }) };
  return { ...call, answer };
}

/** One more than what a request may have: the row adds an object. */
const callDepthMax = limits.jsonDepthMax + 1;

/** Turns a finished execution into the answer of `POST /execute`. */
export function toSyncResult(ended: Ended): SyncResult {
  const record = toRecord({ ...ended, artifacts: [], inputFiles: [] }, undefined);
  const ms = record.timing?.execution_ms ?? record.duration_ms ?? 0;
  return {
    success: record.status === "succeeded",
    output: record.output,
    stdout: record.stdout,
    stderr: record.stderr,
    exit_code: record.exit_code,
    execution_time: ms / 1000,
    error: record.error,
    job_type: record.job_type,
    job_id: record.execution_id,
    ...(record.results && { results: record.results }),
    ...(record.results_truncated && { results_truncated: true }),
    ...(record.compile && { compile: record.compile }),
    ...(record.warnings && { warnings: record.warnings }),
  };
}

/** What a facade gets besides, so that it need not read the record. */
export const shownToFacades = (e: ExecutionRow) => ({
  status: e.status,
  resource_usage: usageOf(e),
});

export function toJobStatus(e: ExecutionRow): JobStatus {
  return {
    job_id: e.id,
    status: e.status,
    created_at: timestamp(e.createdAt),
    started_at: optionalTimestamp(e.startedAt),
    ...(e.cancelRequested && !isTerminal(e.status) && { cancel_requested: true }),
  };
}

export function toQueueStatus(status: ExecutionStatus): QueueStatus {
  if (isTerminal(status)) return "completed";
  return status === "queued" ? "pending" : "running";
}

export function timestamp(epochMs: number): string {
  return new Date(epochMs).toISOString();
}

export function optionalTimestamp(epochMs: number | null): string | null {
  return epochMs === null ? null : timestamp(epochMs);
}

/** Invalid UTF-8 becomes U+FFFD, so that any stream can be shown as JSON. */
function text(bytes: Uint8Array | null): string {
  return bytes === null ? "" : decodeUtf8(bytes);
}

/** The bytes are not parsed: they were checked when they came, and parsing would delay every other request. */
function outputOf(bytes: Uint8Array): JsonObject {
  return new JsonText(withoutMark(text(bytes))) as unknown as JsonObject;
}

/** Adds its attempts to each record. */
async function withAttempts(db: AnyDb, records: ExecutionRecord[]): Promise<ExecutionRecord[]> {
  const ids = records.map(({ execution_id: id }) => id);
  const found = await readAttempts(db, { ids: JSON.stringify(ids) });
  const histories = new Map(found.map((history) => [history.id, history]));
  return records.map((record) => {
    const history = histories.get(record.execution_id);
    return { ...record, attempts: history ? toAttempts(history) : [] };
  });
}

function toAttempts(history: AttemptHistory): Attempt[] {
  const lost = (history.lostAttempts ?? []).map((one) => ({
    attempt: one.attempt,
    agent_id: one.agentId,
    agent: one.agent,
    claimed_at: timestamp(one.claimedAt),
    code_started_at: optionalTimestamp(one.codeStartedAt),
    ended_at: timestamp(one.endedAt),
    outcome: one.outcome,
    error: one.error,
  }));
  return [...lost, ...lastAttempt(history)];
}

/** The attempt that runs or has brought the result. If the loss of the last one ended the job, it is among the lost. */
function lastAttempt(history: AttemptHistory): Attempt[] {
  const { leaseId, agentId, startedAt, endedAt, resultHash, lostAttempts } = history;
  const hasResult = resultHash !== null;
  const isLost = endedAt !== null && !hasResult && lostAttempts !== null;
  if (leaseId === null || agentId === null || startedAt === null || isLost) return [];
  return [
    {
      attempt: history.attempt,
      agent_id: agentId,
      agent: history.agent,
      claimed_at: timestamp(startedAt),
      code_started_at: optionalTimestamp(history.codeStartedAt),
      ended_at: optionalTimestamp(endedAt),
      outcome: hasResult ? "result" : null,
      error: history.error,
    },
  ];
}

/** Whether a submission can be accepted and run now. */
export interface Availability {
  /** Why it must be refused now. */
  refusal?: AppError | undefined;
  /** Why it would wait longer than for its turn. */
  wait?: string | undefined;
}

export async function checkAvailability(
  { config, db, now }: ClientDeps,
  mode: "sync" | "async",
  environment: Environment,
  {
    inputs = null,
    language,
    known: given,
  }: {
    inputs?: InputWay | null;
    language?: string | undefined;
    /** The agents, if the caller has just read them. */
    known?: Awaited<ReturnType<typeof listAgents>>;
  } = {},
): Promise<Availability> {
  const known = given ?? (await listAgents(db));
  const at = now();
  const takesIt = (agent: (typeof known)[number]): boolean =>
    takesNow(agent, environment, inputs, config, at);
  if (language === undefined && known.some(takesIt)) return {};
  const found = whyUnavailable(mode, known, config, at);
  if (found) return { refusal: unavailable(found.detail, found.retryAfterS) };
  const live = known.filter((agent) => isLive(agent, config, at));
  const awaits = awaitsImage(environment) || isGone(environment, live);
  const build = awaits ? openBuildOf(environment, await openBuilds(db)) : undefined;
  const nobody = whyNobodyRuns(environment, live, { inputs, build });
  const missing = language === undefined ? undefined : whyNoLanguage(environment, live, language);
  if (missing) {
    const errors = [{ path: "language", message: `must be one of: ${missing.known}` }];
    return { refusal: new AppError("language_unavailable", missing.detail, { errors }) };
  }
  if (nobody === undefined) return { wait: whyNobodyTakes(environment, known, config, at, inputs) };
  if (inputs === "mount" && !live.some((agent) => givesInputs(agent, inputs)) && live.length > 0) {
    return { refusal: new AppError("files_too_large", nobody) };
  }
  const isBuilding = build?.status === "running";
  const obstacle = awaits ? (isBuilding ? undefined : whyNoBuild(environment, live)) : nobody;
  if (mode === "sync" && obstacle !== undefined) return { refusal: unavailable(obstacle, 5) };
  return { wait: nobody };
}

/** Tells a client why its queued execution waits. */
export async function explainWait(
  deps: ClientDeps,
  execution: ExecutionRow,
  position: number,
): Promise<string> {
  if (execution.sessionId !== null) return explainCall(deps, execution.sessionId, position);
  const environment = await readEnvironment(deps, execution.jobType);
  const reason = await whyMoreThanItsTurn(deps, execution, environment);
  // Without an image, no turn comes.
  if (reason !== undefined && environment && awaitsImage(environment)) return reason;
  const turn = turnMessage(position);
  return reason === undefined ? turn : `${turn} ${reason}`;
}

async function explainCall({ db }: ClientDeps, id: string, position: number): Promise<string> {
  const session = await findSession(db, id);
  if (session?.status !== "ready") return `Waiting for session ${id}, which is ${session?.status}.`;
  return `Waiting for its turn in session ${id}, at position ${position}.`;
}

async function whyMoreThanItsTurn(
  deps: ClientDeps,
  { tenant, jobType, availableAt, attempt, inputs }: ExecutionRow,
  environment: Environment | undefined,
): Promise<string | undefined> {
  const { config, db, now } = deps;
  if (attempt === 0 && availableAt > now()) return `It is to start at ${timestamp(availableAt)}.`;
  if (!environment) return `Job type ${jobType} is not configured any more: cancel the job.`;
  const [known, builds, { runningByAgent }, owner] = await Promise.all([
    listAgents(db),
    openBuilds(db),
    readQueueStats(db),
    findTenant(db, tenant),
  ]);
  const at = now();
  const live = known.filter((agent) => isLive(agent, config, at));
  const build = openBuildOf(environment, builds);
  const nobody = whyNobodyRuns(environment, live, { inputs, build });
  if (nobody !== undefined) return nobody;
  if (availableAt > at)
    return `It could not be started, and is tried again at ${timestamp(availableAt)}.`;
  const { running = 0, maxRunning = null } = owner ?? {};
  if (maxRunning !== null && running >= maxRunning)
    return `Tenant ${tenant} has ${running} running jobs (max_running ${maxRunning}): it waits until one ends.`;
  return whyNobodyTakes(environment, known, config, at, inputs, runningByAgent);
}

type WithImages = Pick<Deps, "config"> & { db: AnyDb };

/** Reads the present environments of all job types; with a tenant's database, of those that it may use. */
export async function readEnvironments(deps: WithImages): Promise<Environment[]> {
  const [config, built] = await Promise.all([catalogue(deps), builtImages(deps.db)]);
  const found = environments(config, built);
  return found.filter(({ jobType }) => isFor(tenantOf(deps.db), jobType));
}

/** Reads the environment of one job type; undefined if no type has that name, or the tenant may not use it. */
export async function readEnvironment(
  deps: WithImages,
  name: string,
): Promise<Environment | undefined> {
  const [config, built] = await Promise.all([catalogue(deps), builtImages(deps.db)]);
  const found = environment(config, built, name);
  return found && isFor(tenantOf(deps.db), found.jobType) ? found : undefined;
}

const tenantOf = (db: AnyDb): string => ("tenant" in db ? db.tenant : "*");
