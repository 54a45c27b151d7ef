import type { Usage } from "../../../shared/wire/client/usage.ts";
import type { TenantLimits } from "../../../shared/wire/tenant.ts";

export const tenantLimits: TenantLimits = {
  max_queued: 1000,
  max_running: 20,
  max_stored_bytes: 10_000_000_000,
  max_cpu_s_day: null,
  max_requests: 600,
};

export const usage: Usage = {
  tenant: "search",
  usage: { queued: 12, running: 20, stored_bytes: 48_211_390, cpu_s_today: 5321.4 },
  limits: tenantLimits,
};
