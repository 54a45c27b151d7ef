import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import {
  AsyncSubmitRequest,
  ExecuteRequest,
  SubmittedJob,
  SyncResult,
} from "../../shared/execution.ts";
import type { Deps } from "../deps.ts";
import { toSyncResult } from "../domain/record.ts";
import type { AppEnv } from "../http/context.ts";
import { jsonBody } from "../http/json-body.ts";
import { withPayload } from "../store/read.ts";
import { submit } from "../submit.ts";
import { waitForSync } from "../wait.ts";
import { body, json, originOf, problems } from "./responses.ts";

const submitProblems = problems("invalid_request", "too_large", "timeout_too_long", "unavailable");

export function executeRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const middleware = jsonBody(deps.config.max_request_bytes);

  const execute = createRoute({
    method: "post",
    path: "/execute",
    summary: "Run code and wait for its result",
    description: "Answers when the run has ended. Hanging up cancels the run.",
    middleware,
    request: body(ExecuteRequest),
    responses: { 200: json(SyncResult, "The run has ended."), ...submitProblems },
  });
  app.openapi(execute, async (c) => {
    const origin = { ...originOf(deps, c), mode: "sync" } as const;
    const { job_id } = await submit(deps, c.req.valid("json"), origin);
    const execution = await waitForSync(deps, job_id, c.req.raw.signal);
    return c.json(toSyncResult(await withPayload(deps.db, execution)), 200);
  });

  const executeAsync = createRoute({
    method: "post",
    path: "/execute/async",
    summary: "Queue code and get a job id at once",
    middleware,
    request: body(AsyncSubmitRequest),
    responses: {
      202: json(SubmittedJob, "Queued, or the job that already holds the idempotency key."),
      ...submitProblems,
      ...problems("conflict"),
    },
  });
  app.openapi(executeAsync, async (c) => {
    const origin = { ...originOf(deps, c), mode: "async" } as const;
    const job = await submit(deps, c.req.valid("json"), origin);
    return c.json(job, 202, { Location: `/jobs/${job.job_id}` });
  });
}
