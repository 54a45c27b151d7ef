import type { Tenant } from "../../shared/wire/client/tenants.ts";
import type { TenantLimits } from "../../shared/wire/tenant.ts";
import type { Deps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { timestamp } from "../jobs/record.ts";
import type { Actor } from "../store/audit.ts";
import { findTenant, listTenants, setLimits, type TenantRow, usageOf } from "../store/tenants.ts";

type TenantDeps = Pick<Deps, "db" | "now">;

/** Every tenant, by name. */
export async function showTenants({ db, now }: TenantDeps): Promise<Tenant[]> {
  return (await listTenants(db)).map((row) => describe(row, now()));
}

/** @throws AppError 404 for an unknown tenant. */
export async function showTenant({ db, now }: TenantDeps, name: string): Promise<Tenant> {
  const row = await findTenant(db, name);
  if (!row) throw notFound(`Tenant ${name}`);
  return describe(row, now());
}

/**
 * Sets all limits of a tenant; makes the tenant if there is none. Wakes agents, because jobs that a lower limit held
 * back may start. A command that works on the database has no notifier.
 */
export async function limitTenant(
  deps: TenantDeps & Partial<Pick<Deps, "notifier">>,
  by: Actor,
  name: string,
  limits: TenantLimits,
): Promise<Tenant> {
  await setLimits(deps.db, name, limits, by);
  deps.notifier?.notify("job");
  return showTenant(deps, name);
}

function describe(row: TenantRow, now: number): Tenant {
  const { usage, limits } = usageOf(row, now);
  return { name: row.name, created_at: timestamp(row.createdAt), limits, usage };
}
