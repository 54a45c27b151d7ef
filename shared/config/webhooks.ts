import { z } from "zod";
import { TenantName } from "../wire/tenant.ts";
import { WebhookType } from "../wire/client/webhook-type.ts";

/** `whsec_` and 24 to 64 bytes as base64, as Standard Webhooks has them. */
const WebhookSecret = z.string().refine(isSecret, {
  error: "must be whsec_ followed by 24 to 64 random bytes as base64 (openssl rand -base64 32)",
});

function isSecret(text: string): boolean {
  if (!/^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/.test(text)) return false;
  try {
    const { length } = atob(text.slice("whsec_".length));
    return length >= 24 && length <= 64;
  } catch {
    return false;
  }
}

/** Every call is signed with each of them, so that receivers can change from one to the other. */
const WebhookSecrets = z.array(WebhookSecret).min(1).max(2, "must be one or two");

const WebhookEndpointName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "must be lower-case letters, digits, _ or -");

/** A receiver that the operator configures. */
export const WebhookEndpoint = z.strictObject({
  url: z
    .url({ protocol: /^https?$/ })
    .refine((url) => !hasUser(url), "must have no user or password"),
  events: z.array(WebhookType).min(1).optional(),
  tenants: z.array(TenantName).min(1).optional(),
  secrets: WebhookSecrets,
});
export type WebhookEndpoint = z.infer<typeof WebhookEndpoint>;

function hasUser(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username !== "" || password !== "";
}

/** A host over HTTPS, or over HTTP where the entry begins so. */
const CallbackHost = z
  .string()
  .toLowerCase()
  .regex(
    /^(http:\/\/)?(\*\.)?([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$/,
    'must be a host such as "hooks.example", "*.example:8443" or "http://10.1.2.3:8080"',
  );

/** What the `callback_url` of a request may be, and how its calls are signed. */
const WebhookCallbacks = z.strictObject({
  hosts: z.array(CallbackHost).min(1),
  secrets: WebhookSecrets,
});

export const webhookSettings = {
  webhook_endpoints: z
    .record(WebhookEndpointName, WebhookEndpoint)
    .default({})
    .describe(
      "Receivers of webhooks by name: `url`, `secrets` (one or two), `events` (default: all), and `tenants` whose events it gets (default: all). See docs/guides/webhooks.md.",
    ),
  webhook_callbacks: WebhookCallbacks.optional().describe(
    "Lets requests name a receiver of their own (`callback_url`): `hosts` that it may have (over HTTPS; over plain HTTP those that begin with `http://`), and `secrets` (one or two) that sign its calls. Default: no host.",
  ),
  webhook_private_addresses: z
    .array(
      z.union(
        [z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()],
        "must be an IP address or a CIDR block",
      ),
    )
    .default([])
    .describe(
      "Addresses and CIDR blocks outside the internet that webhooks may reach, such as a receiver in your own network. On Workers: single addresses.",
    ),
};
