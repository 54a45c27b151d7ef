import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import {
  ExecutionPage,
  ExecutionRecord,
  ExecutionStatus,
  type ExecutionPage as Page,
} from "../../shared/execution.ts";
import { limits } from "../../shared/limits.ts";
import type { Deps } from "../deps.ts";
import { toRecord, type View } from "../domain/record.ts";
import { notFound } from "../errors.ts";
import type { AppEnv } from "../http/context.ts";
import type { Database } from "../store/database.ts";
import type { ExecutionRow } from "../store/advance.ts";
import { findExecution, listExecutions, withPayload, withPayloads } from "../store/read.ts";
import { jobIdParam, json, problems, viewQuery } from "./responses.ts";

const listQuery = z.object({
  status: ExecutionStatus.optional(),
  job_type: z.string().optional(),
  limit: z.coerce.number().int().min(1).max(limits.listLimitMax).default(limits.listLimitDefault),
  offset: z.coerce.number().int().min(0).default(0),
  view: viewQuery,
});

export function executionRoutes(app: OpenAPIHono<AppEnv>, { db }: Deps): void {
  const list = createRoute({
    method: "get",
    path: "/executions",
    summary: "Executions, newest first",
    request: { query: listQuery },
    responses: { 200: json(ExecutionPage, "A page of records."), ...problems("invalid_request") },
  });
  app.openapi(list, async (c) => {
    const { status, job_type, limit, offset, view } = c.req.valid("query");
    const rows = await listExecutions(db, { status, jobType: job_type }, limit + 1, offset);
    const shown = rows.slice(0, limit);
    const page = { limit, offset, has_more: rows.length > limit, count: shown.length };
    return c.body(pageStream(db, shown, view, page), 200, {
      "Content-Type": "application/json",
    }) as never;
  });

  const single = createRoute({
    method: "get",
    path: "/executions/{id}",
    summary: "One execution record, finished or not",
    request: { params: jobIdParam, query: z.object({ view: viewQuery }) },
    responses: {
      200: json(ExecutionRecord, "The record as it is now."),
      ...problems("invalid_request", "not_found"),
    },
  });
  app.openapi(single, async (c) => {
    const { id } = c.req.valid("param");
    const execution = await findExecution(db, id);
    if (!execution) throw notFound(`Execution ${id}`);
    return c.json(toRecord(await withPayload(db, execution), c.req.valid("query").view), 200);
  });
}

/** Records whose payloads are in memory at a time: a page of a thousand may hold gigabytes. */
const recordsAtOnce = 8;

/** An `ExecutionPage` as JSON text, its payloads read while it is sent. */
function pageStream(
  db: Database,
  rows: ExecutionRow[],
  view: View,
  page: Omit<Page, "items">,
): ReadableStream<Uint8Array> {
  let next = 0;
  return new ReadableStream<string>({
    start(controller) {
      controller.enqueue('{"items":[');
    },
    async pull(controller) {
      const some = await withPayloads(db, rows.slice(next, next + recordsAtOnce));
      const text = some.map((full) => JSON.stringify(toRecord(full, view))).join(",");
      controller.enqueue(next > 0 && text ? `,${text}` : text);
      next += recordsAtOnce;
      if (next < rows.length) return;
      controller.enqueue(`],${JSON.stringify(page).slice(1)}`);
      controller.close();
    },
  }).pipeThrough(new TextEncoderStream());
}
