import { z } from "zod";
import { ShownTenant, TenantName } from "./access.ts";
import { ExecutionErrorType, ExecutionPhase } from "./errors.ts";
import { JobId, Relationship, TerminalStatus } from "./executions.ts";
import { cursorPageOf, orNull, Timestamp } from "./fields.ts";

export const webhookTypes = [
  "execution.succeeded",
  "execution.failed",
  "execution.timeout",
  "execution.oom",
  "execution.cancelled",
] as const;
export const WebhookType = z.enum(webhookTypes).meta({
  id: "WebhookType",
  description: "How an execution ended.",
});
export type WebhookType = z.infer<typeof WebhookType>;

const WebhookError = z
  .object({ type: ExecutionErrorType, phase: ExecutionPhase })
  .meta({ id: "WebhookError", description: "The record has the message." });

const WebhookLinks = z
  .object({ record: z.string(), result: z.string() })
  .meta({ id: "WebhookLinks", description: "Paths at this service." });

const WebhookData = z
  .object({
    job_id: JobId,
    tenant: TenantName.meta({ description: "Whose job it was." }),
    status: TerminalStatus,
    job_type: z.string(),
    attempt: z.int().meta({ description: "Attempts that were made; 0 if it never started." }),
    created_at: Timestamp,
    started_at: Timestamp.nullable(),
    ended_at: Timestamp,
    exit_code: z.int().nullable(),
    error: orNull(WebhookError),
    correlation_id: z.string(),
    metadata: z.record(z.string(), z.string()).optional(),
    batch_id: JobId.optional(),
    session_id: JobId.optional().meta({ description: "The session whose call it was." }),
    parent_execution_id: JobId.optional(),
    relationship: Relationship.optional(),
    traceparent: z.string().optional(),
    links: WebhookLinks,
  })
  .meta({ id: "WebhookData" });

/** The body of a call: what happened, and where the rest is. */
export const WebhookEvent = z
  .object({
    type: WebhookType,
    timestamp: Timestamp.meta({ description: "When the execution ended." }),
    data: WebhookData,
  })
  .meta({ id: "WebhookEvent", description: "An execution has ended." });
export type WebhookEvent = z.infer<typeof WebhookEvent>;

const WebhookMessage = z
  .object({
    webhook_id: z.string().meta({
      description: "What the header `webhook-id` of a call with this event says.",
      example: "evt_019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
    }),
    event: WebhookEvent,
  })
  .meta({
    id: "WebhookMessage",
    description: "One event, with the body that a call to a receiver would have.",
  });

export const WebhookEventPage = z
  .object({
    items: z.array(WebhookMessage).meta({ description: "Oldest first." }),
    cursor: z.string().meta({ description: "Give it as `after` in the next request." }),
    has_more: z
      .boolean()
      .meta({ description: "Whether there are more events: if so, ask again at once." }),
    listening_s: z.int().meta({
      description:
        "Ask again within this many seconds. An execution that ends later may not become an event.",
    }),
  })
  .meta({ id: "WebhookEventPage" });
export type WebhookEventPage = z.infer<typeof WebhookEventPage>;

export const deliveryStatuses = ["pending", "delivered", "failed"] as const;
export const DeliveryStatus = z.enum(deliveryStatuses).meta({
  id: "DeliveryStatus",
  description: "pending: it is tried now or again later; failed: it is not tried any more.",
});

/** One event on its way to one receiver. */
export const WebhookDelivery = z
  .object({
    id: z.int(),
    webhook_id: z.string().meta({
      description: "The header `webhook-id` of every call: the same for all receivers and tries.",
      example: "evt_019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
    }),
    type: WebhookType,
    job_id: JobId,
    endpoint: z.string().nullable().meta({
      description: "Name of the configured receiver; null for a `callback_url`.",
    }),
    callback_url: z.string().nullable(),
    status: DeliveryStatus,
    attempts: z.int().meta({ description: "Calls that were made." }),
    last_status_code: z.int().nullable().meta({ description: "HTTP status of the last answer." }),
    last_error: z.string().nullable().meta({ description: "Why the last call failed." }),
    created_at: Timestamp,
    next_attempt_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
    tenant: ShownTenant,
  })
  .meta({ id: "WebhookDelivery" });
export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

export const WebhookDeliveryPage = cursorPageOf(WebhookDelivery).meta({
  id: "WebhookDeliveryPage",
});
export type WebhookDeliveryPage = z.infer<typeof WebhookDeliveryPage>;

/** A request's own receiver. Its host is checked against the configuration. */
export const CallbackUrl = z
  .url({ protocol: /^https?$/ })
  .max(2048)
  .refine(isPlain, "must have no user, password or fragment")
  .meta({
    description:
      "Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it.",
    example: "https://hooks.example/airlock",
  });

/** Anything that is no URL is refused by another rule. */
function isPlain(text: string): boolean {
  if (!URL.canParse(text)) return true;
  const { username, password, hash } = new URL(text);
  return username === "" && password === "" && hash === "";
}
