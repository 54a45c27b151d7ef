import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { limits } from "../../shared/wire/limits.ts";
import {
  callDefaults,
  CallRequest,
  defaultContext,
  Interrupted,
  RestartRequest,
  Session,
  SessionContext,
  SessionContexts,
  type SessionFile,
  SessionFiles,
  SessionPage,
  SessionPatch,
  SessionRequest,
  SessionStatus,
} from "../../shared/wire/sessions.ts";
import { IdempotencyHeader } from "../../shared/wire/submissions.ts";
import type { RouteDeps } from "../deps.ts";
import type { OpenStreams } from "../events/routes.ts";
import { artifactKey, contentTypeOf } from "../files/rules.ts";
import { sendDownload } from "../http/answer.ts";
import { jsonBody, optionalJsonBody, readBytes, refuseForm } from "../http/body.ts";
import { actorOf, type AppEnv, originOf } from "../http/context.ts";
import { at, jobId, sessionId } from "../http/examples.ts";
import {
  body,
  bytes,
  describeDownload,
  idParam,
  integerQuery,
  json,
  pageQuery,
  prefer,
  problem,
  problems,
  queuedAnswers,
  runAnswers,
} from "../http/responses.ts";
import {
  answerQueued,
  answerRun,
  keyed,
  refuseUnseenTools,
  refuseWhileDraining,
} from "../jobs/routes.ts";
import {
  type Asking,
  checkPath,
  deleteSession,
  describeSession,
  dropContext,
  fetchFile,
  interrupt,
  listFolder,
  makeContext,
  makeSession,
  patchSession,
  removeFile,
  requireSession,
  sessionEnded,
  submitCall,
  toSessions,
  waitUntilReady,
  writeFile,
} from "./sessions.ts";
import { listSessions } from "./sql.ts";

const sessionParam = idParam("The `session_id`.", sessionId);
const unknownSession = problem("not_found", {
  detail: `Session ${sessionId} does not exist.`,
  session_id: sessionId,
});
const endedSession = problem("session_ended");

/** Sessions: sandboxes whose interpreter remembers from call to call. */
export function sessionRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const middleware = jsonBody(deps.config.max_request_bytes);
  const create = createRoute({
    method: "post",
    path: "/sessions",
    operationId: "createSession",
    summary: "Make a session",
    description:
      "A session is one sandbox with one interpreter: variables, imports and files of a call are there for the next one, also after a call has failed. It ends after `idle_timeout` without a call, at the end of its `lifetime`, or when it is deleted. Its sandbox is shared with nobody.",
    middleware,
    request: {
      headers: IdempotencyHeader,
      ...body(SessionRequest, { example: sessionRequest }),
    },
    responses: {
      201: json(Session, "Ready for calls.", { example: session }, "Location"),
      202: json(
        Session,
        "Not ready yet. Calls may be sent: they wait.",
        { example: queuedSession },
        "Location",
      ),
      409: endedSession,
      429: problem("too_many_sessions"),
      ...problems("timeout_too_long"),
    },
  });
  app.openapi(create, async (c) => {
    const client = c.get("client");
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    const { id } = await makeSession(client, request, originOf(deps, c));
    const made = await waitUntilReady(client, id, request.wait * 1000, c.req.raw.signal);
    if (made.status === "ended") throw sessionEnded(made);
    const Location = `/sessions/${id}`;
    const status = made.status === "ready" ? 201 : 202;
    return c.json(await describeSession(client, made), status, { Location });
  });

  const list = createRoute({
    method: "get",
    path: "/sessions",
    operationId: "listSessions",
    summary: "Sessions, newest first",
    request: {
      query: z.object({
        status: SessionStatus.optional().openapi({ description: "Only sessions in this state." }),
        before: z.uuid().optional().openapi({
          description: "Id of the last session of the previous page: only older ones.",
          example: sessionId,
        }),
        ...pageQuery,
      }),
    },
    responses: {
      200: json(SessionPage, "A page of sessions.", {
        example: { items: [session], limit: 100, offset: 0, has_more: false, count: 1 },
      }),
    },
  });
  app.openapi(list, async (c) => {
    const { limit, offset, ...filter } = c.req.valid("query");
    const client = c.get("client");
    const found = await listSessions(client.db, filter, limit + 1, offset);
    const items = await toSessions(client, found.slice(0, limit));
    const has_more = found.length > limit;
    return c.json({ items, limit, offset, has_more, count: items.length }, 200);
  });

  const one = createRoute({
    method: "get",
    path: "/sessions/{id}",
    operationId: "getSession",
    summary: "A session as it is now",
    request: {
      params: sessionParam,
      query: z.object({
        wait: integerQuery(
          { minimum: 0, maximum: 600, default: 0 },
          "Seconds to wait for it to be ready, or to end before that.",
        ),
      }),
    },
    responses: {
      200: json(Session, "The session.", { example: session }),
      404: unknownSession,
    },
  });
  app.openapi(one, async (c) => {
    const client = c.get("client");
    const waitMs = c.req.valid("query").wait * 1000;
    const { id } = c.req.valid("param");
    const found = await waitUntilReady(client, id, waitMs, c.req.raw.signal);
    return c.json(await describeSession(client, found), 200);
  });

  const patch = createRoute({
    method: "patch",
    path: "/sessions/{id}",
    operationId: "updateSession",
    summary: "Change how long a session lives, or its metadata",
    middleware,
    request: { params: sessionParam, ...body(SessionPatch, { example: { lifetime: 7200 } }) },
    responses: {
      200: json(Session, "The session after the change.", { example: session }),
      404: unknownSession,
      409: endedSession,
      ...problems("timeout_too_long"),
    },
  });
  app.openapi(patch, async (c) => {
    const client = c.get("client");
    const changed = await patchSession(client, c.req.valid("param").id, c.req.valid("json"));
    return c.json(await describeSession(client, changed), 200);
  });

  const removal = createRoute({
    method: "delete",
    path: "/sessions/{id}",
    operationId: "deleteSession",
    summary: "End a session",
    description:
      "Its sandbox is closed. A call that runs is cancelled and keeps its output so far; calls that wait are cancelled. A repeat changes nothing. Its record and those of its calls stay.",
    request: { params: sessionParam },
    responses: { 204: { description: "It has ended." }, 404: unknownSession },
  });
  app.openapi(removal, async (c) => {
    const client = c.get("client");
    await deleteSession(client, c.req.valid("param").id, actorOf(deps, c));
    return c.body(null, 204);
  });
}

const callProblems = {
  ...problems("timeout_too_long"),
  404: unknownSession,
  409: endedSession,
};
const ranAnswers = { ...runAnswers("The call has ended."), ...callProblems };

/** Calls of sessions: they run one at a time, in the order in which they came. */
export function callRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps, streams: OpenStreams): void {
  const { max_request_bytes } = deps.config;
  const middleware = jsonBody(max_request_bytes);
  const draining = refuseWhileDraining(deps);

  const execute = createRoute({
    method: "post",
    path: "/sessions/{id}/execute",
    operationId: "executeInSession",
    summary: "Run code in a session and wait for its result",
    description:
      "Like `POST /execute`, with the variables and files that earlier calls have left. A call that fails, times out or is cancelled does not end the session. If the interpreter has ended, calls fail with `interpreter_ended` until one says `restart: true`. With `Accept: text/event-stream` the answer brings the events of the call.",
    middleware: [draining, middleware] as const,
    request: {
      params: sessionParam,
      headers: IdempotencyHeader,
      ...body(CallRequest, { examples: callExamples }),
    },
    responses: ranAnswers,
  });
  app.openapi(execute, async (c) => {
    const client = c.get("client");
    const origin = { ...originOf(deps, c), mode: "sync" } as const;
    const call = keyed(c.req.valid("json"), c.req.valid("header"));
    const { id } = c.req.valid("param");
    const hasKey = call.idempotency_key !== undefined;
    refuseUnseenTools(c, call);
    return answerRun(c, deps, streams, hasKey, (watch) =>
      submitCall(client, id, call, { ...origin, watch }),
    );
  });

  const executeAsync = createRoute({
    method: "post",
    path: "/sessions/{id}/execute/async",
    operationId: "executeInSessionAsync",
    summary: "Queue a call and get its job id at once",
    description:
      "A call is a job: follow it with `GET /jobs/{id}/events`, read it with `GET /jobs/{id}/result`, cancel it with `POST /jobs/{id}/cancel`. `GET /executions?session_id=` lists the calls of a session.",
    middleware,
    request: {
      params: sessionParam,
      headers: IdempotencyHeader.extend({ Prefer: prefer }),
      ...body(CallRequest, { examples: callExamples }),
    },
    responses: {
      ...queuedAnswers(
        "the call has ended.",
        "It waits for its turn in the session; `queue_position` counts the calls before it.",
      ),
      ...callProblems,
    },
  });
  app.openapi(executeAsync, async (c) => {
    const origin = { ...originOf(deps, c), mode: "async" } as const;
    const call = keyed(c.req.valid("json"), c.req.valid("header"));
    return answerQueued(
      c,
      await submitCall(c.get("client"), c.req.valid("param").id, call, origin),
    );
  });

  const interruption = createRoute({
    method: "post",
    path: "/sessions/{id}/interrupt",
    operationId: "interruptSession",
    summary: "Cancel the call that runs",
    description:
      "The code gets KeyboardInterrupt. The session and the calls that wait go on. `job_id` is null if no call ran, or it ended by itself first.",
    request: { params: sessionParam },
    responses: {
      200: json(Interrupted, "The call that is cancelled, if one ran.", {
        example: { job_id: jobId },
      }),
      404: unknownSession,
    },
  });
  app.openapi(interruption, async (c) => {
    return c.json({ job_id: await interrupt(c.get("client"), c.req.valid("param").id) }, 200);
  });

  const restart = createRoute({
    method: "post",
    path: "/sessions/{id}/restart",
    operationId: "restartSession",
    summary: "Start an interpreter anew",
    description:
      "A call with `restart: true` and no code: it waits for its turn. Variables are gone, files stay. The body is optional.",
    middleware: [draining, optionalJsonBody(max_request_bytes)] as const,
    request: {
      params: sessionParam,
      ...body(RestartRequest, { example: { context: "default" } }, false),
    },
    responses: ranAnswers,
  });
  app.openapi(restart, async (c) => {
    const origin = { ...originOf(deps, c), mode: "sync" } as const;
    const { context } = c.req.valid("json");
    const call = { ...callDefaults, context, restart: true };
    const { id } = c.req.valid("param");
    const client = c.get("client");
    return answerRun(c, deps, streams, false, (watch) =>
      submitCall(client, id, call, { ...origin, watch }),
    );
  });
}

const contextId = "019aa5f0-7d2e-7b40-8c11-5a9e0f1b2c3d";

const sessionRequest: Partial<SessionRequest> = { idle_timeout: 600, lifetime: 3600 };

const session: Session = {
  session_id: sessionId,
  status: "ready",
  busy: false,
  reason: null,
  error: null,
  job_type: "default",
  job_version: "latest",
  requirements: [],
  contexts: ["default"],
  calls: 2,
  created_at: at("00.000"),
  started_at: at("00.006"),
  ready_at: at("00.021"),
  used_at: at("04.102"),
  ended_at: null,
  expires_at: "2026-11-21T10:30:00.000Z",
  idle_timeout: 600,
  python_version: "3.13.2",
  container_backend: "zygote",
  container_runtime: "runc",
};

const { used_at: _used, ...unused } = session;
const queuedSession: Session = {
  ...unused,
  status: "queued",
  message: "No connected agent takes sessions.",
  calls: 0,
  started_at: null,
  ready_at: null,
  used_at: null,
  python_version: null,
  container_backend: null,
  container_runtime: null,
};

type Examples<T> = Record<string, { summary: string; value: T }>;
const callExamples: Examples<Partial<CallRequest>> = {
  cell: { summary: "Code", value: { code: "total = sum([1, 2, 39])\ntotal" } },
  file: {
    summary: "A file to work on",
    value: {
      code: 'open("prices.csv").read()',
      files: [{ name: "prices.csv", to: "work", text: "item,price\ntea,3\n" }],
    },
  },
  command: { summary: "A program", value: { command: ["ls", "-l"] } },
};

const sessionFile: SessionFile = {
  path: "tables/prices.csv",
  type: "file",
  size_bytes: 17,
  modified_at: at("04.100"),
};

const path = "/sessions/{id}/files/{path}";
const params = sessionParam.extend({
  path: z.string().openapi({
    param: { name: "path", in: "path" },
    description: "A path below /output. Slashes in it may be sent percent-encoded or as they are.",
    example: sessionFile.path,
  }),
});
const noFile = problem("not_found", { detail: `${sessionFile.path} is no file of the session.` });
const refusals = { 404: noFile, 409: endedSession };
const inTurn =
  "It is a call, of the kind `files`: it waits for its turn, and lists leave it out unless they ask for it.";

/** Files of sessions. Their routes accept paths with slashes, which OpenAPI paths cannot express. */
export function sessionFileRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const { config } = deps;
  const draining = refuseWhileDraining(deps);
  const asking = (c: Context<AppEnv>, id: string): Asking => ({
    deps: c.get("client"),
    id,
    origin: originOf(deps, c),
    signal: c.req.raw.signal,
  });

  const list = createRoute({
    method: "get",
    path: "/sessions/{id}/files",
    operationId: "listSessionFiles",
    summary: "List a folder of a session",
    description: `At most a thousand entries, ordered by name. ${inTurn}`,
    middleware: draining,
    request: {
      params: sessionParam,
      query: z.object({
        path: z
          .string()
          .default("")
          .openapi({ description: "A folder below /output; default: /output itself." }),
      }),
    },
    responses: {
      200: json(SessionFiles, "Its entries.", {
        example: { path: "tables", items: [sessionFile] },
      }),
      404: unknownSession,
      409: endedSession,
    },
  });
  app.openapi(list, async (c) => {
    const { path } = c.req.valid("query");
    if (path !== "") checkPath(path);
    const items = await listFolder(asking(c, c.req.valid("param").id), path);
    return c.json({ path, items }, 200);
  });

  const { openAPIRegistry } = app;

  describeDownload(
    app,
    { path, description: inTurn, request: { params }, responses: refusals },
    {
      get: { operationId: "readSessionFile", summary: "Download a file of a session" },
      head: { operationId: "getSessionFileHeaders", summary: "Headers of a file of a session" },
    },
  );
  openAPIRegistry.registerPath({
    path,
    method: "put",
    operationId: "writeSessionFile",
    summary: "Write a file of a session",
    description: `The body is the file itself, of at most ${config.max_request_bytes} bytes (\`max_request_bytes\`); larger ones can be uploaded and sent with a call (\`files\`). Folders of its path are made, and a file that is there is replaced. ${inTurn}`,
    request: {
      params,
      body: { required: true, content: { "application/octet-stream": { schema: bytes } } },
    },
    responses: {
      204: { description: "Written." },
      ...refusals,
      404: unknownSession,
      ...problems("files_too_large"),
    },
  });
  openAPIRegistry.registerPath({
    path,
    method: "delete",
    operationId: "deleteSessionFile",
    summary: "Remove a file or a folder of a session",
    description: `A folder goes with all that it has. ${inTurn}`,
    request: { params },
    responses: { 204: { description: "Removed." }, ...refusals },
  });

  const route = "/sessions/:id/files/:path{.+}";
  app.get(route, draining, async (c) => {
    const { id, path } = c.req.param();
    checkPath(path);
    const { artifacts, execution } = await fetchFile(asking(c, id), path);
    const [row] = artifacts;
    if (!row) throw new Error(`execution ${execution.id} has no artifact`);
    return sendDownload(c, {
      what: "The file",
      file: {
        name: path,
        size_bytes: row.sizeBytes,
        sha256: row.sha256,
        content_type: contentTypeOf(path),
      },
      open: (range) => deps.artifacts.get(artifactKey(row), range),
    });
  });
  app.put(route, draining, refuseForm, async (c) => {
    const { id, path } = c.req.param();
    checkPath(path);
    const content = await readBytes(c, config.max_request_bytes);
    await writeFile(asking(c, id), path, content);
    return c.body(null, 204);
  });
  app.delete(route, draining, async (c) => {
    const { id, path } = c.req.param();
    checkPath(path);
    await removeFile(asking(c, id), path);
    return c.body(null, 204);
  });
}

/** Contexts: further interpreters of a session, with variables of their own. */
export function contextRoutes(app: OpenAPIHono<AppEnv>): void {
  const create = createRoute({
    method: "post",
    path: "/sessions/{id}/contexts",
    operationId: "createSessionContext",
    summary: "Make another interpreter in a session",
    description: `It has variables of its own, and shares files and memory with the others. Only one call runs at a time in all of them. A session has at most ${limits.contextsMax}. Send its \`context_id\` as \`context\` of calls.`,
    request: { params: sessionParam },
    responses: {
      201: json(SessionContext, "Made. It starts with its first call.", {
        example: { context_id: contextId },
      }),
      404: unknownSession,
      409: endedSession,
    },
  });
  app.openapi(create, async (c) => {
    const { id } = c.req.valid("param");
    return c.json({ context_id: await makeContext(c.get("client"), id) }, 201);
  });

  const list = createRoute({
    method: "get",
    path: "/sessions/{id}/contexts",
    operationId: "listSessionContexts",
    summary: "The interpreters of a session",
    request: { params: sessionParam },
    responses: {
      200: json(SessionContexts, "All of them.", {
        example: { items: [{ context_id: defaultContext }, { context_id: contextId }] },
      }),
      404: unknownSession,
    },
  });
  app.openapi(list, async (c) => {
    const { contexts } = await requireSession(c.get("client"), c.req.valid("param").id);
    const items = [defaultContext, ...contexts].map((context_id) => ({ context_id }));
    return c.json({ items }, 200);
  });

  const removal = createRoute({
    method: "delete",
    path: "/sessions/{id}/contexts/{context_id}",
    operationId: "deleteSessionContext",
    summary: "Remove an interpreter from a session",
    description: "It must have no call that waits or runs. The context `default` stays.",
    request: {
      params: sessionParam.extend({
        context_id: z.string().openapi({
          param: { name: "context_id", in: "path" },
          example: contextId,
        }),
      }),
    },
    responses: {
      204: { description: "Removed." },
      404: unknownSession,
      409: endedSession,
    },
  });
  app.openapi(removal, async (c) => {
    const { id, context_id } = c.req.valid("param");
    await dropContext(c.get("client"), id, context_id);
    return c.body(null, 204);
  });
}
