import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import {
  ExecutionRecord,
  InProgressResult,
  isTerminal,
  JobStatus,
} from "../../../shared/wire/execution.ts";
import { limits } from "../../../shared/wire/limits.ts";
import { readRecord, requireExecution } from "../../jobs/read-records.ts";
import { toJobStatus, toQueueStatus } from "../../jobs/record.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonRecord } from "../../http/json-page.ts";
import { explainWait } from "../../jobs/availability.ts";
import { queuePosition } from "../../store/jobs/read.ts";
import { ofTenant } from "../../store/tenant.ts";
import { cancel, waitForEnd } from "../../jobs/wait.ts";
import { inProgress, jobStatus, recordExamples } from "../../openapi/examples/jobs.ts";
import { problem } from "../../openapi/responses/problems.ts";
import { json, problems } from "../../openapi/responses/bodies.ts";
import { booleanQuery, integerQuery, jobIdParam, viewQuery } from "../../openapi/parameters.ts";

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
    tags: ["Jobs"],
    summary: "Status of a job",
    request: { params: jobIdParam },
    responses: {
      200: json(JobStatus, "The job as it is now.", { example: jobStatus }),
      ...problems("not_found"),
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
    tags: ["Jobs"],
    summary: "Result of a job",
    description:
      "If the job has ended, its record. If not: 202 with its position in the queue, or with `wait=true` the record as soon as the job ends, or 408 after `timeout` seconds.",
    request: { params: jobIdParam, query: resultQuery },
    responses: {
      200: json(ExecutionRecord, "The job has ended.", { examples: recordExamples }),
      202: json(InProgressResult, "The job has not ended, and `wait` was false.", {
        example: inProgress,
      }),
      ...problems("invalid_request", "not_found", "wait_timeout"),
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
    tags: ["Jobs"],
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
      ...problems("not_found"),
      409: problem("conflict"),
    },
  });
  app.openapi(cancelJob, async (c) => {
    return c.json(toJobStatus(await cancel(c.get("client"), c.req.valid("param").id)), 200);
  });
}
