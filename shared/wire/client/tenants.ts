import { z } from "zod";
import { orNull } from "../../or-null.ts";
import { Timestamp } from "../timestamp.ts";

/** Who owns records. */
export const TenantName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9-]{0,62}$/,
    "must be 1 to 63 lower-case letters, digits and hyphens, and begin with a letter or digit",
  )
  .meta({ example: "search" });

const limit = (minimum: number, description: string) =>
  orNull(z.int().min(minimum).max(Number.MAX_SAFE_INTEGER)).default(null).meta({ description });

/** The limits of one tenant: null is no limit. */
export const TenantLimits = z
  .strictObject({
    max_queued: limit(0, "Jobs that wait."),
    max_running: limit(1, "Jobs that run; more wait. Implies `max_queued` 1000."),
    max_stored_bytes: limit(0, "Bytes of stored code, input, output, files and artifacts."),
    max_cpu_s_day: limit(0, "CPU seconds of the jobs that end on one UTC day."),
    max_requests: limit(
      1,
      "Requests with all its keys in `api_rate_limit_window_seconds`, if `api_rate_limit_enabled` is set.",
    ),
  })
  .meta({ id: "TenantLimits", description: "What a tenant may use; null is no limit." });
export type TenantLimits = z.infer<typeof TenantLimits>;

/** What a tenant uses now. */
export const TenantUsage = z
  .object({
    queued: z.int().meta({ description: "Jobs that wait." }),
    running: z.int().meta({ description: "Jobs that run." }),
    stored_bytes: z.int(),
    cpu_s_day: z.number().meta({
      description: "CPU seconds of the jobs that have ended on the current UTC day.",
    }),
  })
  .meta({ id: "TenantUsage" });
export type TenantUsage = z.infer<typeof TenantUsage>;

/** `GET /tenants/{name}`; `GET /usage` has the same for the caller's tenant, without `created_at`. */
export const Tenant = z
  .object({
    name: TenantName,
    created_at: Timestamp,
    limits: TenantLimits,
    usage: TenantUsage,
  })
  .meta({ id: "Tenant" });
export type Tenant = z.infer<typeof Tenant>;

export const TenantList = z.object({ tenants: z.array(Tenant) }).meta({ id: "TenantList" });
