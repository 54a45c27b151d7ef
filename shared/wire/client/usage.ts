import { z } from "zod";
import { TenantLimits, TenantUsage } from "../tenant.ts";

/** The answer of `GET /usage`. */
export const Usage = z
  .object({
    tenant: z.string().meta({ example: "default" }),
    usage: TenantUsage,
    limits: TenantLimits,
  })
  .meta({ id: "Usage", description: "What a tenant uses and may use." });
export type Usage = z.infer<typeof Usage>;
