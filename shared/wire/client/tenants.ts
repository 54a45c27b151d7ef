import { z } from "zod";
import { TenantLimits, TenantUsage } from "../tenant.ts";
import { Timestamp } from "../timestamp.ts";

/** Who owns records. */
export const TenantName = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9-]{0,62}$/,
    "must be 1 to 63 lower-case letters, digits and hyphens, and begin with a letter or digit",
  )
  .meta({ example: "search" });

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
