import { createRoute, z, type OpenAPIHono } from "@hono/zod-openapi";
import {
  DeliveryStatus,
  WebhookDelivery,
  WebhookDeliveryPage,
  WebhookEvent,
  WebhookEventPage,
} from "../../shared/wire/client/webhook.ts";
import type { RouteDeps } from "../deps.ts";
import { notFound } from "../errors.ts";
import type { AppEnv } from "../http/context.ts";
import { jobId } from "../openapi/examples/jobs.ts";
import { problem } from "../openapi/responses/problems.ts";
import { body, json, problems } from "../openapi/responses/bodies.ts";
import { beforeQuery, integerQuery, pageQuery, plainNumber } from "../openapi/parameters.ts";
import {
  webhookDelivery,
  webhookDeliveryPage,
  webhookEvent,
  webhookEventPage,
} from "../openapi/examples/webhooks.ts";
import { ofTenant } from "../store/tenant.ts";
import { listDeliveries } from "../store/webhooks/list.ts";
import { resend, toDelivery } from "../webhooks/deliveries.ts";
import { listenForEvents } from "../webhooks/listen.ts";

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
    tags: ["Webhooks"],
    summary: "What became of the calls to receivers, newest first",
    description: "One delivery for each event and receiver. They are kept for 7 days.",
    request: { query },
    responses: {
      200: json(WebhookDeliveryPage, "A page of deliveries.", { example: webhookDeliveryPage }),
      ...problems("invalid_request"),
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
    tags: ["Webhooks"],
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
    tags: ["Webhooks"],
    summary: "Fetch webhook events instead of being called",
    description:
      "For a receiver that the service cannot reach, such as one on a developer's machine: `airlock listen` fetches the events, signs them and calls the receiver. The first request, without `after`, is answered at once with the cursor to start from. While a client asks, and for `listening_s` seconds afterwards, every execution that ends is stored as an event, even if no receiver is configured.",
    request: { query: eventsQuery },
    responses: {
      200: json(WebhookEventPage, "The events after the cursor, oldest first.", {
        example: webhookEventPage,
      }),
      ...problems("invalid_request"),
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
