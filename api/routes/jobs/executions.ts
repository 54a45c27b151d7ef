import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { actorOf } from "../../http/origin.ts";
import {
  ExecutionDeleted,
  ExecutionList,
  ExecutionRecord,
} from "../../../shared/wire/execution.ts";
import { readRecord, readRecords, requireExecution } from "../../jobs/read-records.ts";
import { remove } from "../../jobs/remove.ts";
import type { AppEnv } from "../../http/context.ts";
import { jsonPage, jsonRecord } from "../../http/json-page.ts";
import { listExecutions } from "../../store/jobs/list.ts";
import { executionPage, jobId, recordExamples } from "../../openapi/examples/jobs.ts";
import { problem } from "../../openapi/responses/problems.ts";
import { filterOf, listQuery } from "../../openapi/list-query.ts";
import { json, problems } from "../../openapi/responses/bodies.ts";
import { jobIdParam, viewQuery } from "../../openapi/parameters.ts";

export function executionRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/executions",
    operationId: "listExecutions",
    tags: ["Executions"],
    summary: "Executions, newest first",
    request: { query: listQuery },
    responses: {
      200: json(ExecutionList, "A page of records.", { example: executionPage }),
      ...problems("invalid_request"),
    },
  });
  app.openapi(list, async (c) => {
    const query = c.req.valid("query");
    const { limit, offset } = query;
    const { db } = c.get("client");
    const rows = await listExecutions(db, filterOf(query), limit + 1, offset);
    return jsonPage(c, rows, { limit, offset }, (some) => readRecords(db, some, query)) as never;
  });

  const single = createRoute({
    method: "get",
    path: "/executions/{id}",
    operationId: "getExecution",
    tags: ["Executions"],
    summary: "One execution record, finished or not",
    request: { params: jobIdParam, query: z.object({ view: viewQuery }) },
    responses: {
      200: json(ExecutionRecord, "The record as it is now.", { examples: recordExamples }),
      ...problems("invalid_request"),
      404: problem("not_found", { detail: `Execution ${jobId} does not exist.` }),
    },
  });
  app.openapi(single, async (c) => {
    const { id } = c.req.valid("param");
    const client = c.get("client");
    const execution = await requireExecution(client, id, "Execution");
    const record = await readRecord(client.db, execution, c.req.valid("query").view);
    return (await jsonRecord(c, record)) as never;
  });

  const removal = createRoute({
    method: "delete",
    path: "/executions/{id}",
    operationId: "deleteExecution",
    tags: ["Executions"],
    summary: "Remove a finished execution",
    description:
      "Removes its record, streams, artifacts and dead letter. Its idempotency key stays taken: a repeat of its submission is 409 and does not run the code again.",
    request: { params: jobIdParam },
    responses: {
      200: json(ExecutionDeleted, "Removed.", { example: { execution_id: jobId, deleted: true } }),
      404: problem("not_found", { detail: `Execution ${jobId} does not exist.` }),
      409: problem("conflict", {
        detail: `Job ${jobId} has not finished: cancel it first.`,
        job_id: jobId,
      }),
    },
  });
  app.openapi(removal, async (c) => {
    const { id } = c.req.valid("param");
    const deps = c.get("client");
    await remove(deps, id, actorOf(deps, c));
    return c.json({ execution_id: id, deleted: true as const }, 200);
  });
}
