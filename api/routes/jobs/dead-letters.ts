import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import { decodeUtf8 } from "../../../shared/bytes.ts";
import {
  DeadLetterDeleted,
  DeadLetterPage,
  DeadLetterStats,
  type DeadLetter,
} from "../../../shared/wire/client/dead-letter.ts";
import { ExecutionErrorType } from "../../../shared/wire/errors.ts";
import { JsonText, type JsonObject } from "../../../shared/json.ts";
import { timestamp } from "../../jobs/record.ts";
import { notFound } from "../../errors.ts";
import type { AppEnv } from "../../http/context.ts";
import { actorOf } from "../../http/origin.ts";
import { jsonPage } from "../../http/json-page.ts";
import {
  deadLetterPayloads,
  deadLetterStats,
  deleteDeadLetter,
  listDeadLetters,
  type DeadLetterRow,
} from "../../store/jobs/dead-letters.ts";
import { type AnyDb, ofTenant } from "../../store/tenant.ts";
import { deadLetterPage, deadLetterStats as statsExample } from "../../openapi/examples/jobs.ts";
import { problem } from "../../openapi/responses/problems.ts";
import { json, problems } from "../../openapi/responses/bodies.ts";
import { beforeQuery, pageQuery, plainNumber } from "../../openapi/parameters.ts";

const before = beforeQuery("Id of the last entry of the previous page: only older entries.");

/** The dead letter queue: asynchronous jobs that failed for good. */
export function deadLetterRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/dlq",
    operationId: "listDeadLetters",
    tags: ["Dead letters"],
    summary: "Failed jobs, newest first",
    request: {
      query: z.object({ error_type: ExecutionErrorType.optional(), before, ...pageQuery }),
    },
    responses: {
      200: json(DeadLetterPage, "A page of entries.", { example: deadLetterPage }),
      ...problems("invalid_request"),
    },
  });
  app.openapi(list, async (c) => {
    const { error_type, before, limit, offset } = c.req.valid("query");
    const { db } = c.get("client");
    const rows = await listDeadLetters(db, { type: error_type, before }, limit + 1, offset);
    return jsonPage(c, rows, { limit, offset }, (some) => toDeadLetters(db, some)) as never;
  });

  const stats = createRoute({
    method: "get",
    path: "/dlq/stats",
    operationId: "getDeadLetterStats",
    tags: ["Dead letters"],
    summary: "Counts of failed jobs by error type",
    responses: { 200: json(DeadLetterStats, "Counts of the entries.", { example: statsExample }) },
  });
  app.openapi(stats, async (c) => {
    const { byType, oldest } = await deadLetterStats(c.get("client").db);
    return c.json(
      {
        total: [...byType.values()].reduce((sum, n) => sum + n, 0),
        by_error_type: Object.fromEntries(byType),
        oldest_created_at: oldest === null ? null : timestamp(oldest),
      },
      200,
    );
  });

  const remove = createRoute({
    method: "delete",
    path: "/dlq/{id}",
    operationId: "deleteDeadLetter",
    tags: ["Dead letters"],
    summary: "Remove an entry",
    description: "The execution record stays.",
    request: {
      params: z.object({ id: z.string().openapi({ type: "integer", minimum: 1, example: 1 }) }),
    },
    responses: {
      200: json(DeadLetterDeleted, "Removed.", { example: { id: 1, deleted: true } }),
      404: problem("not_found", { detail: "DLQ entry 1 does not exist." }),
    },
  });
  app.openapi(remove, async (c) => {
    const { id: text } = c.req.valid("param");
    const id = plainNumber(text) ?? 0;
    const deps = c.get("client");
    const isGone = await deleteDeadLetter(deps.db, id, actorOf(deps, c));
    if (!isGone) throw notFound(`DLQ entry ${text}`);
    return c.json({ id, deleted: true as const }, 200);
  });
}

async function toDeadLetters(db: AnyDb, rows: DeadLetterRow[]): Promise<DeadLetter[]> {
  const payloads = await deadLetterPayloads(db, rows);
  return rows.map((row) => {
    const payload = payloads.get(row.executionId);
    const input = new JsonText(payload ? decodeUtf8(payload.input) : "{}") as unknown;
    return {
      id: row.id,
      job_id: row.executionId,
      job_data: {
        code: payload ? decodeUtf8(payload.code) : "",
        input_data: input as JsonObject,
        job_type: row.jobType,
      },
      error_type: row.error?.type ?? "unknown",
      error_message: row.error?.message ?? "",
      retry_count: row.attempt > 0 ? row.attempt - 1 : 0,
      created_at: timestamp(row.createdAt),
      client_ip: row.clientIp,
      correlation_id: row.correlationId,
      ...ofTenant(db, row),
    };
  });
}
