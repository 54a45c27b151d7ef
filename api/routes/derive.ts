import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { DerivedJob, ForkRequest, RerunRequest } from "../../shared/execution.ts";
import type { Deps } from "../deps.ts";
import { derive } from "../derive.ts";
import type { AppEnv } from "../http/context.ts";
import { jsonBody, optionalJsonBody } from "../http/json-body.ts";
import { body, jobIdParam, json, originOf, problems } from "./responses.ts";

/** Rerun and fork: new jobs from earlier ones. */
export function deriveRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const { max_request_bytes } = deps.config;
  const responses = {
    202: json(DerivedJob, "Queued."),
    ...problems("invalid_request", "not_found", "too_large", "timeout_too_long", "unavailable"),
  };

  const rerun = createRoute({
    method: "post",
    path: "/jobs/{id}/rerun",
    summary: "Run a job again: same code, same input",
    middleware: optionalJsonBody(max_request_bytes),
    request: {
      params: jobIdParam,
      body: { content: { "application/json": { schema: RerunRequest } } },
    },
    responses,
  });
  app.openapi(rerun, async (c) => {
    const job = await derive(deps, c.req.valid("param").id, c.req.valid("json"), originOf(deps, c));
    return c.json(job, 202, { Location: `/jobs/${job.job_id}` });
  });

  const fork = createRoute({
    method: "post",
    path: "/jobs/{id}/fork",
    summary: "Run new code on a job's input",
    middleware: jsonBody(max_request_bytes),
    request: { params: jobIdParam, ...body(ForkRequest) },
    responses,
  });
  app.openapi(fork, async (c) => {
    const job = await derive(deps, c.req.valid("param").id, c.req.valid("json"), originOf(deps, c));
    return c.json(job, 202, { Location: `/jobs/${job.job_id}` });
  });
}
