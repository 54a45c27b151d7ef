import { createRoute, type OpenAPIHono } from "@hono/zod-openapi";
import { Batch, BatchRequest, SubmittedBatch } from "../../../shared/wire/client/batch.ts";
import { IdempotencyHeader } from "../../../shared/wire/client/submission.ts";
import { cancelBatch, readBatch } from "../../batches/batch.ts";
import { submitJobs } from "../../batches/submit.ts";
import type { RouteDeps } from "../../deps.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonBody } from "../../http/body/json.ts";
import { keyed } from "../../jobs/idempotency.ts";
import { batch, batchId, batchRequest, submittedBatch } from "../../openapi/examples/batches.ts";
import { problem } from "../../openapi/responses/problems.ts";
import { body, json, problems } from "../../openapi/responses/bodies.ts";
import { originOf } from "../../http/origin.ts";
import { idParam } from "../../openapi/parameters.ts";

const params = idParam("The `batch_id` from the answer to the submission.", batchId);
const unknown = problem("not_found", { detail: `Batch ${batchId} does not exist.` });

/** Many submissions in one request, and what becomes of them. */
export function batchRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const submit = createRoute({
    method: "post",
    path: "/execute/batch",
    operationId: "executeBatch",
    tags: ["Batches"],
    summary: "Queue up to 1,000 jobs in one request",
    description:
      "All jobs are stored in one durable transaction, and it counts as one request for the rate limit. Each job gets its own answer, in its place: as from `POST /execute/async`, or a problem. They are accepted in order while the queue has room. With `atomic` all are accepted or none; the first job that is refused is then the answer.",
    middleware: jsonBody(deps.config.max_batch_bytes, "max_batch_bytes"),
    request: { headers: IdempotencyHeader, ...body(BatchRequest, { example: batchRequest }) },
    responses: {
      202: json(SubmittedBatch, "The answers.", { example: submittedBatch }, "Location"),
      ...problems("invalid_request", "too_large", "unavailable"),
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
    tags: ["Batches"],
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
    tags: ["Batches"],
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
