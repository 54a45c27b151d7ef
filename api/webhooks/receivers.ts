import type { Config } from "../../shared/config/config.ts";
import { type WebhookType, webhookTypes } from "../../shared/wire/client/webhook-type.ts";
import { isFor } from "../domain/job-types.ts";
import { isAllowedCallback } from "../domain/webhooks/callback.ts";
import type { DeliveryRow } from "../store/webhooks/deliveries.ts";
import type { NewEvent, Receiver } from "../store/webhooks/events.ts";

type WebhookConfig = Pick<Config, "webhook_endpoints" | "webhook_callbacks">;

/** Whether any receiver or callback is configured. */
export function hasReceivers(config: WebhookConfig): boolean {
  return Object.keys(config.webhook_endpoints).length > 0 || config.webhook_callbacks !== undefined;
}

/** The types that configured endpoints want. Callbacks get every type. */
export function wantedTypes({ webhook_endpoints: endpoints }: WebhookConfig): WebhookType[] {
  const wants = Object.values(endpoints).map(({ events = webhookTypes }) => events);
  return webhookTypes.filter((type) => wants.some((types) => types.includes(type)));
}

/** Who gets an event. */
export function receiversOf(
  { webhook_endpoints: endpoints }: WebhookConfig,
  { type, tenant, callbackUrl }: NewEvent,
): Receiver[] {
  const named = Object.entries(endpoints)
    .filter(([, { events = webhookTypes }]) => events.includes(type))
    .filter(([, endpoint]) => isFor(tenant, endpoint))
    .map(([name]) => ({ receiver: name, callbackUrl: null }));
  if (callbackUrl === null) return named;
  return [...named, { receiver: new URL(callbackUrl).origin, callbackUrl }];
}

export interface Target {
  url: string;
  secrets: readonly string[];
}

/** Where a delivery goes by the current configuration, or why it cannot be sent. */
export function targetOf(
  config: WebhookConfig,
  { tenant, receiver, callbackUrl }: Pick<DeliveryRow, "tenant" | "receiver" | "callbackUrl">,
): Target | { refusal: string } {
  if (callbackUrl !== null) {
    const { hosts, secrets } = config.webhook_callbacks ?? { hosts: [], secrets: [] };
    return isAllowedCallback(callbackUrl, hosts)
      ? { url: callbackUrl, secrets }
      : { refusal: `${receiver} is no longer one of the hosts of webhook_callbacks` };
  }
  const endpoint = Object.hasOwn(config.webhook_endpoints, receiver)
    ? config.webhook_endpoints[receiver]
    : undefined;
  if (!endpoint) return { refusal: `webhook_endpoints has no ${receiver} any more` };
  return isFor(tenant, endpoint)
    ? endpoint
    : { refusal: `${receiver} of webhook_endpoints gets no events of tenant ${tenant} any more` };
}
