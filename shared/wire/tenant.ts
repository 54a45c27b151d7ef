import { z } from "zod";

/** Who owns records. */
export const TenantName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9-]{0,62}$/,
    "must be 1 to 63 lower-case letters, digits and hyphens, and begin with a letter or digit",
  )
  .meta({ example: "search" });

/** Whose a record is. Only answers to requests for all tenants show it. */
export const ShownTenant = TenantName.optional().meta({
  description: "Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).",
});

/** Limits and use of tenants. */

/** Waiting jobs of a tenant that has `max_running` and no `max_queued`: each costs every claim a little. */
export const queuedOfBounded = 1000;

const bound = (least: number, description: string) =>
  z.int().min(least).nullable().default(null).meta({ description });

export const TenantLimits = z
  .strictObject({
    max_queued: bound(0, "Jobs that may wait at once."),
    max_running: bound(
      0,
      `Jobs that may run at once; others wait. With it, \`max_queued\` is at least a default of ${queuedOfBounded}.`,
    ),
    max_stored_bytes: bound(
      0,
      "Bytes of its code, input, metadata, output, artifacts and files together. What its running jobs write counts, but is stored even above the limit.",
    ),
    max_cpu_s_day: bound(0, "Seconds of CPU time of its jobs that end on one day (UTC)."),
    max_requests: bound(1, "Requests of all its keys together in `api_rate_limit_window_seconds`."),
  })
  .meta({ id: "TenantLimits", description: "What a tenant may use; null: no limit." });
export type TenantLimits = z.infer<typeof TenantLimits>;

/** Limits that refuse a submission. With a full `max_running`, jobs wait; `max_requests` is a rate limit. */
export const quotas = ["max_queued", "max_stored_bytes", "max_cpu_s_day"] as const;
export const Quota = z
  .enum(quotas)
  .meta({ id: "Quota", description: "The limit of the tenant that is reached." });
export type Quota = z.infer<typeof Quota>;

export const TenantUsage = z
  .object({
    queued: z.int().meta({ description: "Jobs that wait." }),
    running: z.int().meta({ description: "Jobs that run." }),
    stored_bytes: z.int().meta({
      description:
        "Bytes of code, input, metadata, output, artifacts and files. Those of a removed artifact or file count until they are gone.",
    }),
    cpu_s_today: z
      .number()
      .meta({ description: "Seconds of CPU time of the jobs that ended today (UTC)." }),
  })
  .meta({ id: "TenantUsage", description: "What a tenant uses now." });
export type TenantUsage = z.infer<typeof TenantUsage>;
