import { z } from "zod";

export const webhookTypes = [
  "execution.succeeded",
  "execution.failed",
  "execution.timeout",
  "execution.oom",
  "execution.cancelled",
] as const;
/** In a file of its own, because the configuration is loaded before the library that describes schemas. */
export const WebhookType = z.enum(webhookTypes).meta({
  id: "WebhookType",
  description: "How an execution ended.",
});
export type WebhookType = z.infer<typeof WebhookType>;
