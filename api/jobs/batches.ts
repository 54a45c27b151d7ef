import { createRoute, type OpenAPIHono, type z } from "@hono/zod-openapi";
import { canonicalJsonInPieces, type JsonObject, plainNumber } from "../../shared/json.ts";
import { letOthersRun } from "../../shared/turns.ts";
import { fieldErrors, type Problem } from "../../shared/wire/errors.ts";
import { executionStatuses, isTerminal } from "../../shared/wire/executions.ts";
import type { InputWay } from "../../shared/wire/files.ts";
import {
  AsyncSubmitRequest,
  Batch,
  BatchRequest,
  IdempotencyHeader,
  SubmittedBatch,
  type SubmittedJob,
} from "../../shared/wire/submissions.ts";
import type { ClientDeps, RouteDeps } from "../deps.ts";
import { AppError, notFound, notValid, problemOf } from "../errors.ts";
import { fileFinder } from "../files/files.ts";
import { jsonBody } from "../http/body.ts";
import { type AppEnv, originOf } from "../http/context.ts";
import { correlationId, jobId, submittedJob } from "../http/examples.ts";
import { body, idParam, json, problem } from "../http/responses.ts";
import { rideOut } from "../store/database.ts";
import { ofTenant } from "../store/tenant.ts";
import { batchTooLarge, quotaExceeded } from "../tenants/tenants.ts";
import {
  type BatchItem,
  cancelMembers,
  findBatch,
  readStandings,
  type StoredBatch,
  submitBatch,
} from "./batch-sql.ts";
import type { Environment } from "./environment.ts";
import { type Availability, checkAvailability, timestamp } from "./read.ts";
import { keyed } from "./routes.ts";
import {
  databaseFull,
  idempotencyConflict,
  newExecution,
  type NewExecution,
  notifyAt,
  type Origin,
  queueFull,
  runnableEnvironment,
  submittedBytes,
  toSubmitted,
} from "./submit.ts";
import { tellEnd } from "./wait.ts";

/** The example of the documentation: a batch of three jobs, the last of which was refused. */
const batchId = "019aa5f1-0d2f-7b11-8e4c-5b6d7f8091a2";
const created_at = submittedJob.created_at;

const batchRequest: z.input<typeof BatchRequest> = {
  jobs: [
    { code: "print(1)", metadata: { part: "1" } },
    { code: "print(2)", metadata: { part: "2" } },
    { code: "print(3)", idempotency_key: "order-4711" },
  ],
};

const submittedBatch: SubmittedBatch = {
  batch_id: batchId,
  created_at,
  jobs: [
    submittedJob,
    { ...submittedJob, job_id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c11", queue_position: 2 },
    problemOf(
      new AppError(
        "conflict",
        `The idempotency key was used with a different payload, for job ${jobId}. Use a new key.`,
        { existing_job_id: jobId, job_id: jobId },
      ),
      correlationId,
    ),
  ],
};

const batch: Batch = {
  batch_id: batchId,
  created_at,
  total: 3,
  finished: false,
  counts: { queued: 1, running: 1, succeeded: 0, failed: 0, timeout: 0, oom: 0, cancelled: 1 },
};

const params = idParam("The `batch_id` from the answer to the submission.", batchId);
const unknown = problem("not_found", { detail: `Batch ${batchId} does not exist.` });

/** Many submissions in one request, and what becomes of them. */
export function batchRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const submit = createRoute({
    method: "post",
    path: "/execute/batch",
    operationId: "executeBatch",
    summary: "Queue up to 1,000 jobs in one request",
    description:
      "All jobs are stored in one durable transaction, and it counts as one request for the rate limit. Each job gets its own answer, in its place: as from `POST /execute/async`, or a problem. They are accepted in order while the queue has room. With `atomic` all are accepted or none; the first job that is refused is then the answer.",
    middleware: jsonBody(deps.config.max_batch_bytes, "max_batch_bytes"),
    request: { headers: IdempotencyHeader, ...body(BatchRequest, { example: batchRequest }) },
    responses: {
      202: json(SubmittedBatch, "The answers.", { example: submittedBatch }, "Location"),
      409: problem("conflict", {
        detail: `The idempotency key was used with a different batch, ${batchId}. Use a new key.`,
      }),
      422: problem("batch_too_large"),
    },
  });
  app.openapi(submit, async (c) => {
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    const submitted = await submitJobs(c.get("client"), request, originOf(deps, c));
    return c.json(submitted, 202, { Location: `/batches/${submitted.batch_id}` });
  });

  const read = createRoute({
    method: "get",
    path: "/batches/{id}",
    operationId: "getBatch",
    summary: "How many members of a batch have which status",
    description: "`GET /executions?batch_id=` lists their records.",
    request: { params },
    responses: { 200: json(Batch, "The batch as it is now.", { example: batch }), 404: unknown },
  });
  app.openapi(read, async (c) =>
    c.json(await readBatch(c.get("client"), c.req.valid("param").id), 200),
  );

  const cancel = createRoute({
    method: "post",
    path: "/batches/{id}/cancel",
    operationId: "cancelBatch",
    summary: "Cancel every member of a batch that has not finished",
    description:
      "Queued members end at once. Running members are asked to end and keep their output so far. A repeat changes nothing.",
    request: { params },
    responses: {
      200: json(Batch, "The batch after the call.", {
        example: {
          ...batch,
          finished: true,
          counts: { ...batch.counts, queued: 0, running: 0, cancelled: 3 },
        },
      }),
      404: unknown,
    },
  });
  app.openapi(cancel, async (c) =>
    c.json(await cancelBatch(c.get("client"), c.req.valid("param").id), 200),
  );
}

/**
 * Stores a batch in one transaction. When this resolves, all of its accepted jobs survive a crash.
 *
 * @throws AppError 409 when the batch's idempotency key has another payload; 422 when an atomic batch can
 *   never be accepted whole; of an atomic batch, the problem of the first job that has one.
 */
async function submitJobs(
  deps: ClientDeps,
  { jobs, atomic, idempotency_key: key }: BatchRequest,
  origin: Omit<Origin, "mode">,
): Promise<SubmittedBatch> {
  const { config, db, newId, now } = deps;
  // Of all its jobs, and before their ids: lists by time rely on it.
  const createdAt = now();
  const clock = { ...deps, now: () => createdAt };
  const prepared = await prepareJobs(clock, jobs, { ...origin, mode: "async" });
  if (atomic) refuse(prepared.map((one) => ("problem" in one ? one.problem : undefined)));
  const { distinct, firstOf } = withoutRepeats(prepared);
  if (atomic && distinct.length > config.max_queue_size) {
    const why = `the queue holds ${config.max_queue_size} (max_queue_size)`;
    throw batchTooLarge(distinct.length, why);
  }
  const batch = {
    id: newId(),
    keyId: origin.keyId ?? null,
    idempotencyKey: key ?? null,
    submissionHash: await identityOfBatch(deps, jobs, prepared, atomic),
    createdAt,
    isAtomic: atomic,
    items: distinct,
  };
  // Sent again during an outage, because a commit whose answer was lost may have succeeded.
  const stored = await rideOut(deps, () => submitBatch(db, batch, config.max_queue_size));
  if (stored.submissionHash !== batch.submissionHash) {
    const detail = `The idempotency key was used with a different batch, ${stored.id}. Use a new key.`;
    throw new AppError("conflict", detail);
  }
  const outcomes = new Map(stored.outcome.map((outcome) => [outcome.n, outcome]));
  const ids = stored.outcome.flatMap(({ id }) => id ?? []);
  const standings = await rideOut(deps, () => readStandings(db, ids));
  const left = distinct.filter(({ n }) => outcomes.get(n)?.id === null);
  const full =
    left.length > 0 ? await whatIsFull(deps, atomic ? left : left.slice(0, 1), stored) : undefined;
  if (full?.code === "batch_too_large") throw full;
  const answer = (one: Prepared, n: number): SubmittedJob | AppError => {
    if ("problem" in one) return one.problem;
    const first = firstOf.get(n) ?? n;
    const outcome = outcomes.get(first);
    const id = outcome?.id ?? undefined;
    if (id === undefined) return one.refusal ?? full!;
    const isRepeat = first !== n && !isSamePayload(prepared[first], one);
    if (isRepeat || !(outcome?.isAccepted || outcome?.isSame || outcome?.isRemoved)) {
      return idempotencyConflict(id, "was used with a different payload, for job {id}");
    }
    const standing = standings.get(id);
    return standing
      ? toSubmitted(standing, one.wait, origin.correlationId)
      : idempotencyConflict(id, "was used for job {id}, which was removed");
  };
  const answers = prepared.map(answer);
  if (atomic && stored.outcome.some((one) => !one.isAccepted && !one.isSame)) {
    // Jobs without a fault of their own were left out as well: the reason is another job, or the queue.
    refuse(answers.map((one, n) => (outcomes.get(n)?.id ? one : undefined)));
    refuse(answers.map((one, n) => (isBlocked(prepared[n]) ? one : undefined)));
    refuse(answers);
  }
  wakeAgents(deps, distinct);
  return {
    batch_id: stored.id,
    created_at: timestamp(stored.createdAt),
    jobs: answers.map((one): SubmittedJob | Problem =>
      one instanceof AppError ? problemOf(one, origin.correlationId) : one,
    ),
  };
}

/** Of jobs with the same idempotency key only the first is stored; the others get its answer. */
function withoutRepeats(prepared: Prepared[]): {
  distinct: BatchItem[];
  firstOf: Map<number, number>;
} {
  const byKey = new Map<string, number>();
  const firstOf = new Map<number, number>();
  const distinct: BatchItem[] = [];
  for (const [n, one] of prepared.entries()) {
    if ("problem" in one) continue;
    const { execution, refusal } = one;
    const key = execution.idempotencyKey ?? undefined;
    const first = key === undefined ? undefined : byKey.get(key);
    if (first !== undefined) {
      firstOf.set(n, first);
      continue;
    }
    if (key !== undefined) byKey.set(key, n);
    distinct.push({ n, execution, isBlocked: refusal !== undefined });
  }
  return { distinct, firstOf };
}

const isBlocked = (one: Prepared | undefined): boolean =>
  one !== undefined && "refusal" in one && one.refusal !== undefined;

function isSamePayload(first: Prepared | undefined, one: Prepared): boolean {
  if (!first || "problem" in first || "problem" in one) return false;
  return first.execution.submissionHash === one.execution.submissionHash;
}

/** Why there was no room for these items. */
async function whatIsFull(
  deps: ClientDeps,
  items: BatchItem[],
  stored: StoredBatch,
): Promise<AppError> {
  const bytes = items.reduce((sum, { execution }) => sum + submittedBytes(execution), 0);
  const exceeded = await quotaExceeded(deps, { jobs: items.length, bytes }, stored);
  return exceeded ?? queueFull(deps.config.max_queue_size);
}

/** @throws AppError of the first job that was refused, with its place in the path of each fault. */
function refuse(answers: unknown[]): void {
  for (const [n, one] of answers.entries()) {
    if (!(one instanceof AppError)) continue;
    const errors = one.extras.errors?.map(({ path, message }) => ({
      path: `jobs.${n}.${path}`,
      message,
    }));
    throw new AppError(
      one.code,
      `The batch is atomic, and jobs.${n} was refused: ${one.message}`,
      { ...one.extras, ...(errors && { errors }) },
      one.headers,
    );
  }
}

function wakeAgents(deps: ClientDeps, items: BatchItem[]): void {
  const first = new Map<string, NewExecution>();
  for (const { execution } of items) {
    const other = first.get(execution.jobType);
    if (!other || execution.availableAt < other.availableAt)
      first.set(execution.jobType, execution);
  }
  for (const execution of first.values()) notifyAt(deps, execution);
}

/** A job of a batch that can be stored, or why it cannot. */
type Prepared =
  | { execution: NewExecution; refusal?: AppError | undefined; wait?: string | undefined }
  | { problem: AppError };

/** Jobs that are prepared in one tick of the event loop: a few milliseconds. */
const jobsAtOnce = 50;

/** Validates the jobs of a batch, each by itself. Other requests run in between. */
async function prepareJobs(
  deps: ClientDeps,
  jobs: JsonObject[],
  origin: Origin,
): Promise<Prepared[]> {
  const full = await databaseFull(deps);
  const environments = new Map<string, Promise<Environment>>();
  const availabilities = new Map<string, Promise<Availability>>();
  const lookUp: LookUp = {
    environment: (name) => once(environments, name, () => runnableEnvironment(deps, name)),
    availability: (environment, inputs, language) =>
      once(availabilities, `${inputs} ${language} ${environment.jobType.name}`, async () => {
        const needs = { inputs, language };
        const found = await checkAvailability(deps, "async", environment, needs);
        return { refusal: full, ...found };
      }),
    files: fileFinder(deps),
  };
  const prepared: Prepared[] = [];
  for (const [n, job] of jobs.entries()) {
    if (n % jobsAtOnce === jobsAtOnce - 1) await letOthersRun();
    prepared.push(
      await prepare(deps, job, origin, lookUp).catch((error: unknown) => {
        if (error instanceof AppError) return { problem: error };
        throw error;
      }),
    );
  }
  return prepared;
}

/** What several jobs of a batch may need; each is looked up once. */
interface LookUp {
  environment: (jobType: string) => Promise<Environment>;
  availability: (
    environment: Environment,
    inputs: InputWay | null,
    language: string | undefined,
  ) => Promise<Availability>;
  files: ReturnType<typeof fileFinder>;
}

function once<T>(known: Map<string, Promise<T>>, name: string, find: () => Promise<T>): Promise<T> {
  const found = known.get(name) ?? find();
  known.set(name, found);
  return found;
}

async function prepare(
  deps: ClientDeps,
  job: JsonObject,
  origin: Origin,
  lookUp: LookUp,
): Promise<Prepared> {
  const plain = Object.fromEntries(Object.entries(job).map(([k, v]) => [k, plainNumber(v)]));
  const parsed = AsyncSubmitRequest.safeParse(plain);
  if (!parsed.success) throw notValid("The job", fieldErrors(parsed.error));
  const environment = await lookUp.environment(parsed.data.job_type);
  const files = await lookUp.files(parsed.data.files ?? []);
  const execution = await newExecution(deps, parsed.data, origin, environment.jobType, files);
  const { refusal, wait } = await lookUp.availability(
    environment,
    execution.inputs ?? null,
    execution.program?.language,
  );
  return { execution, refusal: files.problem ?? refusal, wait };
}

/** A hash by which a repeated batch is recognised. */
async function identityOfBatch(
  { sha256 }: ClientDeps,
  jobs: JsonObject[],
  prepared: Prepared[],
  isAtomic: boolean,
): Promise<string> {
  const parts: unknown[] = [];
  for (const [n, one] of prepared.entries()) {
    parts.push(
      "problem" in one
        ? await sha256(await canonicalJsonInPieces(jobs[n]))
        : [one.execution.submissionHash, one.execution.idempotencyKey ?? null],
    );
  }
  return sha256(JSON.stringify([isAtomic, parts]));
}

/** @throws AppError 404 when the batch is unknown. */
async function readBatch({ db }: ClientDeps, id: string): Promise<Batch> {
  const found = await findBatch(db, id);
  if (!found) throw notFound(`Batch ${id}`);
  const counts = Object.fromEntries(
    executionStatuses.map((status) => [status, found.counts.get(status) ?? 0]),
  ) as Batch["counts"];
  const members = [...found.counts];
  return {
    batch_id: id,
    created_at: timestamp(found.createdAt),
    total: members.reduce((sum, [, n]) => sum + n, 0),
    finished: members.every(([status]) => isTerminal(status)),
    counts,
    ...ofTenant(db, found),
  };
}

/** Wake-ups are hints, and on Workers each is a request: the others look within seconds. */
const mostWakes = 100;

/**
 * Cancels the members that are queued, and asks the agents of those that run. A repeat changes nothing.
 *
 * @throws AppError 404 when the batch is unknown.
 */
async function cancelBatch(deps: ClientDeps, id: string): Promise<Batch> {
  const { db, notifier, now } = deps;
  const changed = await cancelMembers(db, id, now());
  const agents = new Set(changed.flatMap(({ agentId }) => agentId ?? []));
  for (const agent of agents) notifier.notify(`agent:${agent}`);
  const ended = changed.filter(({ status }) => isTerminal(status));
  for (const execution of ended.slice(0, mostWakes)) tellEnd(deps, execution);
  return readBatch(deps, id);
}
