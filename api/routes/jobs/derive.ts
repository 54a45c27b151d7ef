import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import {
  DerivedJob,
  ForkRequest,
  IdempotencyHeader,
  RerunRequest,
} from "../../../shared/wire/client/submission.ts";
import type { RouteDeps } from "../../deps.ts";
import { derive } from "../../jobs/derive.ts";
import { keyed } from "../../jobs/idempotency.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonBody, optionalJsonBody } from "../../http/body/json.ts";
import { derivedJob, forkExample, rerunExamples } from "../../openapi/examples/jobs.ts";
import { body, json, problems } from "../../openapi/responses/bodies.ts";
import { originOf } from "../../http/origin.ts";
import { jobIdParam } from "../../openapi/parameters.ts";
import { submitProblems } from "./execute.ts";

const responses = (relationship: DerivedJob["relationship"]) => ({
  202: json(DerivedJob, "Queued.", { example: { ...derivedJob, relationship } }, "Location"),
  ...problems("not_found"),
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
    tags: ["Jobs"],
    summary: "Run a job again: same code, same input",
    description: "A new job, whose record names this one as its parent. The body is optional.",
    middleware: optionalJsonBody(max_request_bytes),
    request: {
      params: jobIdParam,
      headers: IdempotencyHeader,
      ...body(RerunRequest, { examples: rerunExamples }, false),
    },
    responses: responses("rerun"),
  });
  app.openapi(rerun, async (c) => {
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    return answer(c, c.req.valid("param").id, request);
  });

  const fork = createRoute({
    method: "post",
    path: "/jobs/{id}/fork",
    operationId: "forkJob",
    tags: ["Jobs"],
    summary: "Run new code on a job's input",
    description: "A new job, whose record names this one as its parent.",
    middleware: jsonBody(max_request_bytes),
    request: {
      params: jobIdParam,
      headers: IdempotencyHeader,
      ...body(ForkRequest, { example: forkExample }),
    },
    responses: responses("fork"),
  });
  app.openapi(fork, async (c) => {
    const request = keyed(c.req.valid("json"), c.req.valid("header"));
    return answer(c, c.req.valid("param").id, request);
  });
}
