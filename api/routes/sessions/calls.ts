import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import {
  callDefaults,
  CallRequest,
  Interrupted,
  RestartRequest,
} from "../../../shared/wire/client/session.ts";
import { IdempotencyHeader } from "../../../shared/wire/client/submission.ts";
import type { RouteDeps } from "../../deps.ts";
import type { OpenStreams } from "../../events/open-streams.ts";
import { jsonBody, optionalJsonBody } from "../../http/body/json.ts";
import type { AppEnv } from "../../http/context.ts";
import { originOf } from "../../http/origin.ts";
import { keyed } from "../../jobs/idempotency.ts";
import { jobId } from "../../openapi/examples/jobs.ts";
import { callExamples } from "../../openapi/examples/sessions.ts";
import { body, json, problems } from "../../openapi/responses/bodies.ts";
import { prefer } from "../../openapi/parameters.ts";
import { queuedAnswers, runAnswers } from "../../openapi/responses/runs.ts";
import { interrupt } from "../../sessions/change-session.ts";
import { submitCall } from "../../sessions/submit-call.ts";
import {
  answerQueued,
  answerRun,
  refuseUnseenTools,
  refuseWhileDraining,
} from "../jobs/answer-run.ts";
import { endedSession, sessionParam, unknownSession } from "./sessions.ts";

const callProblems = {
  ...problems("invalid_request", "too_large", "timeout_too_long", "unavailable"),
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
    tags: ["Sessions"],
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
    return answerRun(c, deps, streams, hasKey, () => submitCall(client, id, call, origin));
  });

  const executeAsync = createRoute({
    method: "post",
    path: "/sessions/{id}/execute/async",
    operationId: "executeInSessionAsync",
    tags: ["Sessions"],
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
    tags: ["Sessions"],
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
    tags: ["Sessions"],
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
    return answerRun(c, deps, streams, false, () => submitCall(client, id, call, origin));
  });
}
