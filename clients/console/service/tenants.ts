import type {
  ApiKey,
  AuditAction,
  AuditPage,
  KeyRequest,
  NewApiKey,
  Scope,
  Tenant,
  TenantLimits,
  Usage,
} from "../../typescript/src/generated.ts";
import { api } from "./client.ts";
import { tenant } from "./key.ts";
import { pageSize } from "./records.ts";

export type { ApiKey, KeyRequest, NewApiKey, Scope, Tenant, TenantLimits, Usage };
export type AuditEntry = AuditPage["items"][number];

export const getUsage = (signal: AbortSignal): Promise<Usage> => api.getUsage({ signal });

export const listTenants = async (signal: AbortSignal): Promise<Tenant[]> =>
  (await api.listTenants({ signal })).tenants;

export const setLimits = (name: string, tenantLimits: TenantLimits): Promise<Tenant> =>
  api.setTenantLimits({ name, tenantLimits });

/** Those of the tenant that is chosen, or of all. */
export async function listKeys(signal: AbortSignal): Promise<ApiKey[]> {
  const chosen = tenant.value === "*" || tenant.value === "" ? {} : { tenant: tenant.value };
  return (await api.listKeys(chosen, { signal })).keys;
}
export const createKey = (keyRequest: KeyRequest): Promise<NewApiKey> =>
  api.createKey({ keyRequest });
export const rotateKey = (id: string, oldValidS: number): Promise<NewApiKey> =>
  api.rotateKey({ id, keyRotation: { old_valid_s: oldValidS } });
export const revokeKey = (id: string): Promise<ApiKey> => api.revokeKey({ id });

export function listAudit(query: URLSearchParams, signal: AbortSignal): Promise<AuditPage> {
  const [action, whose, before] = ["action", "tenant", "before"].map((name) => query.get(name));
  return api.listAudit(
    {
      limit: pageSize,
      ...(action && { action: action as AuditAction }),
      ...(whose && { tenant: whose }),
      ...(before && { before: Number(before) }),
    },
    { signal },
  );
}
