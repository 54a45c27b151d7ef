import type { WebhookType } from "../../shared/wire/client/webhook-type.ts";
import type { WebhookDelivery } from "../../shared/wire/client/webhook.ts";
import type { ClientDeps } from "../deps.ts";
import { webhookId } from "../domain/webhooks/event.ts";
import { AppError, notFound } from "../errors.ts";
import { timestamp } from "../jobs/record.ts";
import { type DeliveryRow, findDelivery, sendAgain } from "../store/webhooks/deliveries.ts";
import { typeOf } from "../store/webhooks/list.ts";
import { targetOf } from "./receivers.ts";

/**
 * Sends a delivery again, whatever became of it, with all its tries before it.
 *
 * @throws AppError 404 when it is unknown; 409 when its receiver is no longer configured.
 */
export async function resend(deps: ClientDeps, id: number): Promise<WebhookDelivery> {
  const { config, db, now, notifier } = deps;
  const unknown = notFound(`Webhook delivery ${id}`);
  const found = await findDelivery(db, id);
  if (!found) throw unknown;
  const target = targetOf(config, found);
  if ("refusal" in target) throw new AppError("conflict", `It cannot be sent: ${target.refusal}.`);
  const again = await sendAgain(db, id, now());
  if (!again) throw unknown;
  notifier.notify("webhook");
  return toDelivery({ ...again, type: await typeOf(db, again) });
}

export function toDelivery(row: DeliveryRow & { type: WebhookType }): WebhookDelivery {
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
    ended_at: row.endedAt === null ? null : timestamp(row.endedAt),
  };
}

/** While a call is being made, it is not known whether there will be another one. */
function isBetweenCalls({ status, claimedUntil }: DeliveryRow): boolean {
  return status === "pending" && claimedUntil === null;
}
