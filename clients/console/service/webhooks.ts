import type { WebhookDelivery, WebhookDeliveryPage } from "../../typescript/src/generated.ts";
import { api } from "./client.ts";
import { pageSize } from "./records.ts";

export type Delivery = WebhookDelivery;
export const deliveryFilters = ["status", "endpoint", "job_id"] as const;

export function listDeliveries(
  query: URLSearchParams,
  signal: AbortSignal,
): Promise<WebhookDeliveryPage> {
  const [status, endpoint, jobId, before] = [...deliveryFilters, "before"].map((name) =>
    query.get(name),
  );
  return api.listWebhookDeliveries(
    {
      limit: pageSize,
      ...(status && { status: status as Delivery["status"] }),
      ...(endpoint && { endpoint }),
      ...(jobId && { jobId }),
      ...(before && { before: Number(before) }),
    },
    { signal },
  );
}

export const resend = (id: number): Promise<Delivery> => api.resendWebhookDelivery({ id });
