import { z } from "zod";
import { TenantLimits, TenantUsage } from "../tenant.ts";
import { Scope } from "./keys.ts";

/** The answer of `GET /usage`. */
export const Usage = z
  .object({
    tenant: z.string().meta({ example: "default" }),
    scopes: z.array(Scope).meta({ description: "What the key of the request may do." }),
    usage: TenantUsage,
    limits: TenantLimits,
  })
  .meta({ id: "Usage", description: "What a tenant uses and may use." });
export type Usage = z.infer<typeof Usage>;
