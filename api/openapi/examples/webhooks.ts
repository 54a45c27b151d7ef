import type {
  WebhookDelivery,
  WebhookDeliveryPage,
  WebhookEvent,
  WebhookEventPage,
} from "../../../shared/wire/client/webhook.ts";
import { correlationId, jobId } from "./jobs.ts";

const at = (seconds: string): string => `2026-11-21T09:30:${seconds}Z`;

export const webhookEvent: WebhookEvent = {
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

export const webhookDelivery: WebhookDelivery = {
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

export const webhookDeliveryPage: WebhookDeliveryPage = {
  items: [webhookDelivery],
  limit: 100,
  has_more: false,
  count: 1,
};

export const webhookEventPage: WebhookEventPage = {
  items: [{ webhook_id: `evt_${jobId}`, event: webhookEvent }],
  cursor: "12",
  has_more: false,
  listening_s: 120,
};
