import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import { sleep } from "../../shared/turns.ts";
import {
  DeliveryStatus,
  WebhookDelivery,
  WebhookDeliveryPage,
  WebhookEvent,
  WebhookEventPage,
  type WebhookType,
} from "../../shared/wire/webhooks.ts";
import type { ClientDeps, RouteDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import type { AppEnv } from "../http/context.ts";
import { at, correlationId, jobId } from "../http/examples.ts";
import {
  beforeQuery,
  body,
  integerQuery,
  json,
  pageQuery,
  plainNumber,
  problem,
} from "../http/responses.ts";
import { optionalTimestamp, timestamp } from "../jobs/read.ts";
import { ofTenant } from "../store/tenant.ts";
import { targetOf } from "./deliver.ts";
import { toEvent, webhookId } from "./rules.ts";
import {
  type DeliveryRow,
  eventsAfter,
  findDelivery,
  keepListening,
  lastEvent,
  listDeliveries,
  sendAgain,
  typeOf,
} from "./sql.ts";

const query = z.object({
  status: DeliveryStatus.optional(),
  endpoint: z.string().optional().openapi({
    description: "Only deliveries to this configured receiver.",
    example: "orders",
  }),
  job_id: z
    .string()
    .optional()
    .openapi({ description: "Only deliveries about this job.", example: jobId }),
  before: beforeQuery("Id of the last delivery of the previous page: only older ones."),
  limit: pageQuery.limit,
});

const eventsQuery = z.object({
  after: z
    .string()
    .regex(/^(0|[1-9][0-9]{0,14})$/, "must be a cursor of an earlier answer")
    .optional()
    .openapi({
      description:
        "The `cursor` of the last answer. Without it, the answer has no events, only the cursor to start from; so it is with a cursor that this database has not reached, as after a restore.",
    }),
  wait: integerQuery(
    { minimum: 0, maximum: 20, default: 0 },
    "How many seconds to wait for an event if there is none.",
  ),
  limit: pageQuery.limit,
});

/** Calls to receivers: what became of each, and sending it again. */
export function webhookRoutes(app: OpenAPIHono<AppEnv>, deps: RouteDeps): void {
  const list = createRoute({
    method: "get",
    path: "/webhooks/deliveries",
    operationId: "listWebhookDeliveries",
    summary: "What became of the calls to receivers, newest first",
    description: "One delivery for each event and receiver. They are kept for 7 days.",
    request: { query },
    responses: {
      200: json(WebhookDeliveryPage, "A page of deliveries.", { example: webhookDeliveryPage }),
    },
  });
  app.openapi(list, async (c) => {
    const { status, endpoint, job_id, before, limit } = c.req.valid("query");
    const filter = { status, endpoint, jobId: job_id, before };
    const { db } = c.get("client");
    const rows = await listDeliveries(db, filter, limit + 1);
    const items = rows.slice(0, limit).map((row) => ({ ...toDelivery(row), ...ofTenant(db, row) }));
    return c.json({ items, limit, has_more: rows.length > limit, count: items.length }, 200);
  });

  const again = createRoute({
    method: "post",
    path: "/webhooks/deliveries/{id}/resend",
    operationId: "resendWebhookDelivery",
    summary: "Send a delivery again",
    description:
      "Whatever became of it: it is due at once and has all its tries before it. The call has the same `webhook-id` and body as before.",
    request: {
      params: z.object({ id: z.string().openapi({ type: "integer", minimum: 1, example: 12 }) }),
    },
    responses: {
      202: json(WebhookDelivery, "The delivery, which is pending.", {
        example: {
          ...webhookDelivery,
          next_attempt_at: "2026-11-21T10:02:00.000Z",
        },
      }),
      404: problem("not_found", { detail: "Webhook delivery 12 does not exist." }),
      409: problem("conflict", {
        detail: "It cannot be sent: webhook_endpoints has no orders any more.",
      }),
    },
  });
  app.openapi(again, async (c) => {
    const { id } = c.req.valid("param");
    const number = plainNumber(id);
    if (number === undefined) throw notFound(`Webhook delivery ${id}`);
    return c.json(await resend(c.get("client"), number), 202);
  });

  const events = createRoute({
    method: "get",
    path: "/webhooks/events",
    operationId: "listenForWebhookEvents",
    summary: "Fetch webhook events instead of being called",
    description:
      "For a receiver that the service cannot reach, such as one on a developer's machine: `airlock listen` fetches the events, signs them and calls the receiver. The first request, without `after`, is answered at once with the cursor to start from. While a client asks, and for `listening_s` seconds afterwards, every execution that ends is stored as an event, even if no receiver is configured.",
    request: { query: eventsQuery },
    responses: {
      200: json(WebhookEventPage, "The events after the cursor, oldest first.", {
        example: webhookEventPage,
      }),
    },
  });
  app.openapi(events, async (c) => {
    const { after, wait, limit } = c.req.valid("query");
    const from = after === undefined ? undefined : Number(after);
    const signal = AbortSignal.any([c.req.raw.signal, deps.streamsEnd]);
    const terms = { after: from, limit, waitMs: wait * 1000 };
    return c.json(await listenForEvents(c.get("client"), terms, signal), 200);
  });

  describeCall(app);
}

const headerDescriptions = {
  "webhook-id": "Id of the event, the same at every try: ignore an event that you have seen.",
  "webhook-timestamp": "Time of this call, in seconds since 1970: refuse a call that is too old.",
  "webhook-signature":
    "`v1,` and the base64 of HMAC-SHA256 over `<id>.<timestamp>.<body>`, once for each secret, separated by spaces.",
};

/** The call that receivers get, in the OpenAPI document's `webhooks`. */
function describeCall(app: OpenAPIHono<AppEnv>): void {
  const headers = Object.entries(headerDescriptions).map(([name, description]) => [
    name,
    z.string().openapi({ description }),
  ]);
  app.openAPIRegistry.registerWebhook({
    method: "post",
    path: "executionEnded",
    operationId: "executionEnded",
    tags: ["Webhooks"],
    summary: "An execution has ended",
    description:
      "What a receiver gets, signed as Standard Webhooks says. Any 2xx accepts it; everything else, redirects too, is tried again for three days. 410 ends its delivery.",
    request: {
      headers: z.object(Object.fromEntries(headers)),
      ...body(WebhookEvent, { example: webhookEvent }),
    },
    responses: { 204: { description: "Accepted." } },
  });
}

/**
 * Sends a delivery again, whatever became of it, with all its tries before it.
 *
 * @throws AppError 404 when it is unknown; 409 when its receiver is no longer configured.
 */
export async function resend(deps: ClientDeps, id: number): Promise<WebhookDelivery> {
  const { config, db, now, notifier } = deps;
  const unknown = notFound(`Webhook delivery ${id}`);
  const found = await findDelivery(db, { id });
  if (!found) throw unknown;
  const target = targetOf(config, found);
  if ("refusal" in target) throw new AppError("conflict", `It cannot be sent: ${target.refusal}.`);
  const again = await sendAgain(db, id, now());
  if (!again) throw unknown;
  notifier.notify("webhook");
  return toDelivery({ ...again, type: await typeOf(db, again) });
}

function toDelivery(row: DeliveryRow & { type: WebhookType }): WebhookDelivery {
  return {
    id: row.id,
    webhook_id: webhookId(row),
    type: row.type,
    job_id: row.executionId,
    endpoint: row.callbackUrl === null ? row.receiver : null,
    callback_url: row.callbackUrl,
    status: row.status,
    attempts: row.attempts,
    last_status_code: row.lastStatusCode,
    last_error: row.lastError,
    created_at: timestamp(row.createdAt),
    next_attempt_at: isBetweenCalls(row) ? timestamp(row.dueAt) : null,
    ended_at: optionalTimestamp(row.endedAt),
  };
}

/** While a call is being made, it is not known whether there will be another one. */
function isBetweenCalls({ status, claimedUntil }: DeliveryRow): boolean {
  return status === "pending" && claimedUntil === null;
}

/** A request stores this listening time, once less than half of it is left. */
const listeningMs = 120_000;
/** How often a waiting request queries. Nothing wakes it, so the end of an execution costs nothing more. */
const lookMs = 500;

/**
 * Returns the events after a cursor, once there are any or `waitMs` have passed. Without a cursor, returns
 * the newest one at once. A cursor above the newest one is from a database that was replaced, and is
 * ignored. Each request keeps the service storing events for at least another minute.
 */
async function listenForEvents(
  { db, now, recheck }: ClientDeps,
  { after, limit, waitMs }: { after: number | undefined; limit: number; waitMs: number },
  signal: AbortSignal,
): Promise<WebhookEventPage> {
  if (db.tenant === "*") {
    const detail = "Events are those of one tenant: name it in X-Airlock-Tenant.";
    throw new AppError("invalid_request", detail);
  }
  // A first request gets its cursor at once.
  const end = now() + (after === undefined ? 0 : waitMs);
  const until = await keepListening(db, end + listeningMs / 2, end + listeningMs);
  // Read after the listening time is stored, so that every later end has a higher number.
  const newest = await lastEvent(db);
  const from = Math.min(after ?? newest, newest);
  const waitsUntil = from === after ? end : 0;
  let rows = await eventsAfter(db, { after: from, most: limit + 1 });
  while (rows.length === 0 && now() < waitsUntil && !signal.aborted) {
    await sleep(Math.min(lookMs, end - now()), signal);
    await recheck();
    rows = await eventsAfter(db, { after: from, most: limit + 1 });
  }
  const shown = rows.slice(0, limit);
  return {
    items: shown.map((row) => ({ webhook_id: webhookId(row), event: toEvent(row) })),
    cursor: String(shown.at(-1)?.seq ?? from),
    has_more: rows.length > limit,
    listening_s: Math.max(0, Math.floor((until - now()) / 1000)),
  };
}

const webhookEvent: WebhookEvent = {
  type: "execution.failed",
  timestamp: at("00.140"),
  data: {
    job_id: jobId,
    tenant: "default",
    status: "failed",
    job_type: "default",
    attempt: 1,
    created_at: at("00.000"),
    started_at: at("00.012"),
    ended_at: at("00.140"),
    exit_code: 1,
    error: { type: "value_error", phase: "execution" },
    correlation_id: correlationId,
    metadata: { order: "4711" },
    links: { record: `/executions/${jobId}`, result: `/jobs/${jobId}/result` },
  },
};

const webhookDelivery: WebhookDelivery = {
  id: 12,
  webhook_id: `evt_${jobId}`,
  type: "execution.failed",
  job_id: jobId,
  endpoint: "orders",
  callback_url: null,
  status: "pending",
  attempts: 2,
  last_status_code: 503,
  last_error: "the receiver answered 503",
  created_at: at("00.151"),
  next_attempt_at: at("36.020"),
  ended_at: null,
};

const webhookDeliveryPage: WebhookDeliveryPage = {
  items: [webhookDelivery],
  limit: 100,
  has_more: false,
  count: 1,
};

const webhookEventPage: WebhookEventPage = {
  items: [{ webhook_id: `evt_${jobId}`, event: webhookEvent }],
  cursor: "12",
  has_more: false,
  listening_s: 120,
};
