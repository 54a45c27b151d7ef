import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import { decodeUtf8 } from "../../shared/bytes.ts";
import { type JsonObject, parseJsonInPieces } from "../../shared/json.ts";
import {
  ExecutionRecord,
  InProgressResult,
  isTerminal,
  JobStatus,
} from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import {
  AsyncSubmitRequest,
  DerivedJob,
  ExecuteRequest,
  ForkRequest,
  IdempotencyHeader,
  RerunRequest,
  type SubmittedJob,
} from "../../shared/wire/submissions.ts";
import type { ClientDeps, RouteDeps } from "../deps.ts";
import { AppError, notFound, unavailable, wrongField } from "../errors.ts";
import { contentTypes, encodeAs, followSync } from "../events/follow.ts";
import { endingWith, eventHeaders, eventStream, type OpenStreams } from "../events/routes.ts";
import { jsonRecord, patientJson } from "../http/answer.ts";
import { forgetBody, jsonBody, optionalJsonBody } from "../http/body.ts";
import { type AppEnv, originOf } from "../http/context.ts";
import {
  derivedJob,
  executeAsyncExamples,
  executeExamples,
  forkExample,
  inProgress,
  jobStatus,
  recordExamples,
  rerunExamples,
} from "../http/examples.ts";
import {
  body,
  booleanQuery,
  integerQuery,
  jobIdParam,
  json,
  keyConflictAnswer,
  prefer,
  problem,
  problems,
  queuedAnswers,
  runAnswers,
  viewQuery,
} from "../http/responses.ts";
import { ofTenant } from "../store/tenant.ts";
import type { ToolChoice } from "./environment.ts";
import { findSubmitted } from "./lease.ts";
import {
  explainWait,
  readRecord,
  requireExecution,
  shownToFacades,
  toJobStatus,
  toQueueStatus,
  toRecord,
  toSyncResult,
  withLongFields,
} from "./read.ts";
import { findExecution, queuePosition, wholeFilesOf } from "./sql.ts";
import { type Origin, submit } from "./submit.ts";
import { cancel, waitBriefly, waitForEnd, waitForSync, waitForWatched } from "./wait.ts";

const submitProblems = {
  ...problems("timeout_too_long", "language_unavailable"),
  409: keyConflictAnswer,
};

export function executeRoutes(
  app: OpenAPIHono<AppEnv>,
  deps: RouteDeps,
  streams: OpenStreams,
): void {
  const middleware = jsonBody(deps.config.max_request_bytes);

  const execute = createRoute({
    method: "post",
    path: "/execute",
    operationId: "execute",
    summary: "Run code and wait for its result",
    description:
      "Answers when the run has ended. Code that failed is answered 200 too, with `success: false` and the `error`. If the client hangs up, the run is cancelled, unless it has an `idempotency_key`: then a repeat waits for the same run, or gets its result. With `Accept: text/event-stream` the answer begins at once and brings the events of `GET /jobs/{id}/events`, up to `end`.",
    middleware: [refuseWhileDraining(deps), middleware] as const,
    request: { headers: IdempotencyHeader, ...body(ExecuteRequest, { examples: executeExamples }) },
    responses: {
      ...runAnswers("The run has ended."),
      ...submitProblems,
    },
  });
  app.openapi(execute, async (c) => {
    const client = c.get("client");
    const origin = { ...originOf(deps, c), mode: "sync" } as const;
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    const hasKey = request.idempotency_key !== undefined;
    refuseUnseenTools(c, request);
    return answerRun(c, deps, streams, hasKey, (watch) =>
      submit(client, request, { ...origin, watch }),
    );
  });

  const executeAsync = createRoute({
    method: "post",
    path: "/execute/async",
    operationId: "executeAsync",
    summary: "Queue code and get a job id at once",
    description:
      "Follow the job with `GET /jobs/{id}`, or wait for it with `GET /jobs/{id}/result?wait=true`. With an `idempotency_key` it is safe to send the request again.",
    middleware,
    request: {
      headers: IdempotencyHeader.extend({ Prefer: prefer }),
      ...body(AsyncSubmitRequest, { examples: executeAsyncExamples }),
    },
    responses: {
      ...queuedAnswers(
        "the job has ended.",
        "Queued, or the job that already holds the idempotency key.",
      ),
      ...submitProblems,
    },
  });
  app.openapi(executeAsync, async (c) => {
    const client = c.get("client");
    const origin = { ...originOf(deps, c), mode: "async" } as const;
    const job = await submit(client, keyed(c.req.valid("json"), c.req.valid("header")), origin);
    return answerQueued(c, job);
  });
}

/** A process that stops accepts no new synchronous requests. */
export const refuseWhileDraining = ({ isDraining }: RouteDeps) =>
  createMiddleware<AppEnv>(async (_c, next) => {
    if (isDraining()) throw unavailable("The service is stopping.", 5);
    await next();
  });

/** @throws AppError 400 when a request brings tools, and nobody would hear of their calls. */
export function refuseUnseenTools(
  c: Context<AppEnv>,
  { tools = [] }: Pick<ExecuteRequest, "tools">,
): void {
  if (tools.length === 0 || wantsEvents(c.req.header("Accept"))) return;
  throw wrongField(
    "tools",
    `need the job's id before its end: ask for events with Accept: text/event-stream, or send the request to ${c.req.path}/async`,
  );
}

/** Whether a client of an endpoint that usually answers with JSON wants events instead. */
function wantsEvents(accept: string | undefined): boolean {
  return accept?.toLowerCase().includes(contentTypes.sse) ?? false;
}

/** Submits with `submit`, and answers with the events of the run or with its result. */
export async function answerRun(
  c: Context<AppEnv>,
  deps: RouteDeps,
  streams: OpenStreams,
  hasKey: boolean,
  submit: (watch?: Origin["watch"]) => Promise<SubmittedJob>,
) {
  const client = c.get("client");
  c.get("answer").take(0);
  const part = c.get("part");
  const takeEvents = part?.takeEvents;
  if (takeEvents || wantsEvents(c.req.header("Accept"))) {
    const end = streams.begin(c.get("caller")?.keyId);
    const { job_id } = await submit().catch((error: unknown) => {
      end();
      throw error;
    });
    await forgetBody(c);
    const events = (stop: AbortSignal) => endingWith(followSync(client, job_id, hasKey, stop), end);
    const signals = [c.req.raw.signal];
    if (takeEvents) {
      takeEvents(eventStream(deps, (event) => event, events, signals, "synchronous"));
      return c.body(null, 200);
    }
    const body = eventStream(deps, encodeAs("sse"), events, signals, "synchronous");
    return c.body(body, 200, eventHeaders("sse"));
  }
  let watched: Parameters<typeof waitForWatched>[1] | undefined;
  const watch: Origin["watch"] = (id, startBy = Infinity) => {
    watched = { id, startBy, wakes: deps.notifier.subscribe([`execution:${id}`]) };
  };
  const { job_id } = await submit(watch).catch((error: unknown) => {
    watched?.wakes.close();
    throw error;
  });
  // The job that has the idempotency key is another one.
  const own = watched?.id === job_id ? watched : undefined;
  if (!own) watched?.wakes.close();
  await forgetBody(c);
  const isRunning = Promise.withResolvers<void>();
  const made = patientJson(c, deps, isRunning.promise, async (signal) => {
    const wait = [hasKey, signal, isRunning.resolve] as const;
    const ended = await (own
      ? waitForWatched(client, own, ...wait)
      : waitForSync(client, job_id, ...wait));
    await client.db.durable();
    const result = toSyncResult(ended);
    // A facade need not read the record.
    if (part) Object.assign(result, shownToFacades(ended.execution));
    return jsonRecord(c, withLongFields(client.db, ended, result));
  });
  return (await made) as never;
}

/** Answers for a job that is stored: at once, or with its record if it ends while the client prefers to wait. */
export async function answerQueued(c: Context<AppEnv>, job: SubmittedJob) {
  const Location = `/jobs/${job.job_id}`;
  const waitS = preferredWaitS(c.req.header("Prefer"));
  if (waitS === undefined) return c.json(job, 202, { Location });
  const headers = { Location, "Preference-Applied": `wait=${waitS}` };
  await forgetBody(c);
  const ended = await waitBriefly(c.get("client"), job.job_id, waitS * 1000, c.req.raw.signal);
  if (!ended) return c.json(job, 202, headers);
  const record = withLongFields(c.get("client").db, ended, toRecord(ended, undefined));
  return (await jsonRecord(c, record, headers)) as never;
}

/** Seconds of `Prefer: wait=N` (RFC 7240). A preference that cannot be understood is ignored. */
export function preferredWaitS(header: string | undefined): number | undefined {
  for (const preference of (header ?? "").split(",")) {
    const [, seconds] = /^\s*wait\s*=\s*"?(\d{1,9})"?\s*(;|$)/i.exec(preference) ?? [];
    if (seconds !== undefined) return Math.min(Number(seconds), limits.timeoutSchemaMaxS);
  }
  return undefined;
}

/**
 * Gives a request the idempotency key of its header.
 *
 * @throws AppError 400 when it has two that differ.
 */
export function keyed<T extends { idempotency_key?: string | undefined }>(
  request: T,
  { "Idempotency-Key": header }: { "Idempotency-Key"?: string | undefined },
): T {
  const field = request.idempotency_key;
  if (field !== undefined && header !== undefined && field !== header) {
    const message = "must be the same as the header Idempotency-Key, if both are given";
    throw new AppError("invalid_request", `idempotency_key: ${message}`, {
      errors: [{ path: "idempotency_key", message }],
    });
  }
  if (header !== undefined) request.idempotency_key = header;
  return request;
}

const resultQuery = z.object({
  wait: booleanQuery("Wait for the job's end."),
  timeout: integerQuery(
    { minimum: 0, maximum: limits.timeoutSchemaMaxS, default: limits.waitTimeoutDefaultS },
    "Seconds to wait at most, with `wait=true`.",
  ),
  view: viewQuery,
});

export function jobRoutes(app: OpenAPIHono<AppEnv>): void {
  const status = createRoute({
    method: "get",
    path: "/jobs/{id}",
    operationId: "getJob",
    summary: "Status of a job",
    request: { params: jobIdParam },
    responses: {
      200: json(JobStatus, "The job as it is now.", { example: jobStatus }),
    },
  });
  app.openapi(status, async (c) => {
    const { id } = c.req.valid("param");
    const client = c.get("client");
    const execution = await requireExecution(client, id);
    const status = { ...toJobStatus(execution), ...ofTenant(client.db, execution) };
    if (execution.status !== "queued") return c.json(status, 200);
    const position = await queuePosition(client.db, execution);
    return c.json({ ...status, message: await explainWait(client, execution, position) }, 200);
  });

  const result = createRoute({
    method: "get",
    path: "/jobs/{id}/result",
    operationId: "getJobResult",
    summary: "Result of a job",
    description:
      "If the job has ended, its record. If not: 202 with its position in the queue, or with `wait=true` the record as soon as the job ends, or 408 after `timeout` seconds.",
    request: { params: jobIdParam, query: resultQuery },
    responses: {
      200: json(ExecutionRecord, "The job has ended.", { examples: recordExamples }),
      202: json(InProgressResult, "The job has not ended, and `wait` was false.", {
        example: inProgress,
      }),
      ...problems("wait_timeout"),
    },
  });
  app.openapi(result, async (c) => {
    const { id } = c.req.valid("param");
    const { wait, timeout, view } = c.req.valid("query");
    const waitMs = wait ? timeout * 1000 : 0;
    const client = c.get("client");
    const execution = await waitForEnd(client, id, waitMs, c.req.raw.signal);
    if (isTerminal(execution.status)) {
      return (await jsonRecord(c, await readRecord(client.db, execution, view))) as never;
    }
    if (wait) {
      throw new AppError("wait_timeout", `Job ${id} did not end within ${timeout} s; ask again.`, {
        job_id: id,
      });
    }
    const position = await queuePosition(client.db, execution);
    const status = toQueueStatus(execution.status);
    const message =
      status === "pending" ? await explainWait(client, execution, position) : "Running.";
    return c.json({ job_id: id, status, message, queue_position: position }, 202);
  });

  const cancelJob = createRoute({
    method: "post",
    path: "/jobs/{id}/cancel",
    operationId: "cancelJob",
    summary: "Cancel a job",
    description:
      "A queued job ends at once. A running job is asked to end and keeps its output so far. A repeat changes nothing; a job that has finished otherwise is 409.",
    request: { params: jobIdParam },
    responses: {
      200: json(JobStatus, "The job after the call.", {
        examples: {
          queued: {
            summary: "It was queued",
            value: { ...jobStatus, status: "cancelled", started_at: null },
          },
          running: { summary: "It was running", value: { ...jobStatus, cancel_requested: true } },
        },
      }),
      409: problem("conflict"),
    },
  });
  app.openapi(cancelJob, async (c) => {
    return c.json(toJobStatus(await cancel(c.get("client"), c.req.valid("param").id)), 200);
  });
}

const derivedAnswers = (relationship: DerivedJob["relationship"]) => ({
  202: json(DerivedJob, "Queued.", { example: { ...derivedJob, relationship } }, "Location"),
  ...submitProblems,
});

/** Rerun and fork: new jobs from earlier ones. */
export function deriveRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const { max_request_bytes } = deps.config;
  const answer = async (c: Context<AppEnv>, id: string, request: RerunRequest | ForkRequest) => {
    const job = await derive(c.get("client"), id, request, originOf(deps, c));
    return c.json(job, 202, { Location: `/jobs/${job.job_id}` });
  };
  const rerun = createRoute({
    method: "post",
    path: "/jobs/{id}/rerun",
    operationId: "rerunJob",
    summary: "Run a job again: same code, same input",
    description: "A new job, whose record names this one as its parent. The body is optional.",
    middleware: optionalJsonBody(max_request_bytes),
    request: {
      params: jobIdParam,
      headers: IdempotencyHeader,
      ...body(RerunRequest, { examples: rerunExamples }, false),
    },
    responses: derivedAnswers("rerun"),
  });
  app.openapi(rerun, async (c) => {
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    return answer(c, c.req.valid("param").id, request);
  });

  const fork = createRoute({
    method: "post",
    path: "/jobs/{id}/fork",
    operationId: "forkJob",
    summary: "Run new code on a job's input",
    description: "A new job, whose record names this one as its parent.",
    middleware: jsonBody(max_request_bytes),
    request: {
      params: jobIdParam,
      headers: IdempotencyHeader,
      ...body(ForkRequest, { example: forkExample }),
    },
    responses: derivedAnswers("fork"),
  });
  app.openapi(fork, async (c) => {
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    return answer(c, c.req.valid("param").id, request);
  });
}

/**
 * Submits a new job made from an earlier execution, finished or not. A rerun takes its code; a fork has
 * new code. Both take its input, stdin, args, files, tools, job type, limits, requirements and metadata unless the request overrides
 * them.
 *
 * @throws AppError 404 when the execution is unknown; 409 when it is a call of a session; and the errors of `submit`.
 */
export async function derive(
  deps: ClientDeps,
  parentId: string,
  request: RerunRequest | ForkRequest,
  origin: Omit<Origin, "mode" | "lineage">,
): Promise<DerivedJob> {
  const [parent, submitted] = await Promise.all([
    findExecution(deps.db, parentId),
    findSubmitted(deps.db, parentId),
  ]);
  if (!parent || !submitted) throw notFound(`Job ${parentId}`);
  if (parent.sessionId !== null) {
    const detail = `Job ${parentId} is a call of session ${parent.sessionId}, whose variables it may need. Send its code to a session again: POST /sessions/{id}/execute.`;
    throw new AppError("conflict", detail, { job_id: parentId, session_id: parent.sessionId });
  }
  const { stdin = submitted.stdin && decodeUtf8(submitted.stdin) } = request;
  const input = await parseJsonInPieces(decodeUtf8(submitted.input), {
    depth: limits.jsonDepthMax,
  });
  const tools = toolsOfChild(request, submitted.tools);
  const relationship = "code" in request ? "fork" : "rerun";
  const job = await submit(
    deps,
    {
      code: "code" in request ? request.code : decodeUtf8(submitted.code),
      input_data: input as JsonObject,
      stdin: stdin ?? undefined,
      args: request.args ?? submitted.args ?? undefined,
      ...submitted.program,
      results: request.results ?? parent.results !== null,
      ...tools,
      job_type: request.job_type ?? parent.jobType,
      timeout: request.timeout ?? parent.timeoutS,
      startup_timeout: parent.startupTimeoutS,
      requirements: parent.requirements,
      idempotency_key: request.idempotency_key,
      metadata: request.metadata ?? parent.metadata ?? undefined,
      run_at: request.run_at,
      queue_timeout: request.queue_timeout,
      max_attempts: request.max_attempts ?? (tools.tools ? undefined : parent.maxAttempts),
      callback_url: request.callback_url,
    },
    { ...origin, mode: "async", lineage: { parentExecutionId: parentId, relationship } },
    parent.inputs === null ? [] : await wholeFilesOf(deps.db, { id: parentId }),
  );
  return { ...job, parent_execution_id: parentId, relationship };
}

/** Those of the request, else the parent's; an empty list means none. */
function toolsOfChild(
  { tools, tool_timeout }: RerunRequest,
  parents: ToolChoice | null,
): Partial<ToolChoice> {
  if (tools !== undefined && tools.length === 0) return tool_timeout ? { tool_timeout } : {};
  return {
    ...parents,
    ...(tools !== undefined && { tools }),
    ...(tool_timeout !== undefined && { tool_timeout }),
  };
}
