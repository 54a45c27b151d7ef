import { z } from "zod";
import { TenantLimits, TenantName, TenantUsage } from "../tenant.ts";
import { Timestamp } from "../timestamp.ts";

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
