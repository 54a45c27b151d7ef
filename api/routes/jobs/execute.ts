import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import {
  AsyncSubmitRequest,
  ExecuteRequest,
  IdempotencyHeader,
} from "../../../shared/wire/client/submission.ts";
import type { RouteDeps } from "../../deps.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonBody } from "../../http/body/json.ts";
import type { OpenStreams } from "../../events/open-streams.ts";
import { keyed } from "../../jobs/idempotency.ts";
import { submit } from "../../jobs/submit.ts";
import { executeAsyncExamples, executeExamples } from "../../openapi/examples/jobs.ts";
import { keyConflictAnswer } from "../../openapi/responses/problems.ts";
import { body, problems } from "../../openapi/responses/bodies.ts";
import { prefer } from "../../openapi/parameters.ts";
import { queuedAnswers, runAnswers } from "../../openapi/responses/runs.ts";
import { originOf } from "../../http/origin.ts";
import { answerQueued, answerRun, refuseUnseenTools, refuseWhileDraining } from "./answer-run.ts";

export const submitProblems = {
  ...problems(
    "invalid_request",
    "too_large",
    "timeout_too_long",
    "language_unavailable",
    "unavailable",
  ),
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
    tags: ["Execute"],
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
    return answerRun(c, deps, streams, hasKey, () => submit(client, request, origin));
  });

  const executeAsync = createRoute({
    method: "post",
    path: "/execute/async",
    operationId: "executeAsync",
    tags: ["Execute"],
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
