import type { ApiKey, OwnKey } from "../../../shared/wire/client/keys.ts";
import type { Tenant } from "../../../shared/wire/client/tenants.ts";
import { tenantLimits, usage } from "./tenants.ts";

export const apiKey: ApiKey = {
  id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10",
  name: "ci",
  tenant: "search",
  scopes: ["run", "read"],
  created_at: "2026-11-21T09:30:00.000Z",
  created_by: null,
  expires_at: "2027-02-19T09:30:00.000Z",
  revoked_at: null,
  last_used_at: "2026-11-22T09:45:00.000Z",
};

export const ownKey: OwnKey = { name: "ci", tenant: "search", scopes: ["run", "read"] };

/** Not one that anybody has. */
export const key = `alk_${"x".repeat(43)}`;

export const tenant: Tenant = {
  name: "search",
  created_at: "2026-11-21T09:30:00.000Z",
  limits: tenantLimits,
  usage: usage.usage,
};
