import type { ResultSet } from "@libsql/client/web";
import { and, eq, getTableColumns, sql } from "drizzle-orm";
import { queuedOfBounded, type Quota, type TenantLimits } from "../../shared/wire/tenant.ts";
import { type Actor, audited } from "./audit.ts";
import type { Database } from "./database.ts";
import { tenants } from "./schema.ts";
import { decoder, query, rowsQuery, statement } from "./statement.ts";
import type { Usage } from "../../shared/wire/client/usage.ts";
import { type AnyDb, batch, tenantRow } from "./tenant.ts";

export type TenantRow = typeof tenants.$inferSelect;

/** Every tenant, by name. */
export const listTenants = rowsQuery(query.select().from(tenants).orderBy(tenants.name));

const byName = tenantRow((own) =>
  query
    .select()
    .from(tenants)
    .where(and(eq(tenants.name, sql.placeholder("name")), own(tenants))),
);

export async function findTenant(db: AnyDb, name: string): Promise<TenantRow | undefined> {
  return byName(db, { name });
}

/** The tenant of a handle. */
export const ownTenant = tenantRow((own) => query.select().from(tenants).where(own(tenants)));

const tenantColumns = getTableColumns(tenants);
/** The columns of `decodeTenant`. */
export const columnsOfTenant = sql.join(Object.values(tenantColumns), sql`, `);
/** The first columns of a row as a tenant; undefined if there is none. */
export function decodeTenant(row: ResultSet["rows"][number] | undefined): TenantRow | undefined {
  return row && row[0] !== null ? decode(row) : undefined;
}
const decode = decoder(tenantColumns);

/** A limit that refuses. */
export interface FullQuota {
  quota: Quota;
  limit: number;
  used: number;
}

/** What is asked for. Calls of sessions do not wait in the queue. */
export interface More {
  jobs: number;
  calls?: number;
  bytes: number;
}

/** Which limit refuses this much more at a time (epoch ms); undefined if none does. */
export function fullQuota(
  row: TenantRow,
  { jobs, calls = 0, bytes }: More,
  now: number,
): FullQuota | undefined {
  const { maxCpuSDay, maxStoredBytes, maxQueued, queued, storedBytes } = row;
  const { cpu_s_today: cpuS } = usageOf(row, now).usage;
  if (jobs + calls > 0 && maxCpuSDay !== null && cpuS >= maxCpuSDay)
    return { quota: "max_cpu_s_day", limit: maxCpuSDay, used: cpuS };
  if (maxStoredBytes !== null && storedBytes + bytes > maxStoredBytes)
    return { quota: "max_stored_bytes", limit: maxStoredBytes, used: storedBytes };
  if (jobs > 0 && maxQueued !== null && queued + jobs > maxQueued)
    return { quota: "max_queued", limit: maxQueued, used: queued };
  return undefined;
}

/** Whether a tenant's CPU time is used up on the day `:day`. */
export const isCpuUsed = sql`iif(${tenants.cpuDay} >= ${sql.placeholder("day")}, ${tenants.cpuMs}, 0) >= 1000 * ${tenants.maxCpuSDay}`;

/** Sets a tenant's limits; makes the tenant. No entry in the audit log if the limits were the same. */
export async function setLimits(
  db: Database,
  name: string,
  limits: TenantLimits,
  by: Actor,
): Promise<void> {
  const { max_queued, max_running } = limits;
  const queued = max_queued ?? (max_running === null ? null : queuedOfBounded);
  await batch(db, [
    upsert({ ...limits, max_queued: queued, name, now: by.at, day: dayOf(by.at) }),
    audited({ ...by, tenant: name }, "tenant.limits", name, limits),
  ]);
}

const columns = ["max_queued", "max_running", "max_stored_bytes", "max_cpu_s_day", "max_requests"];
const list = (prefix: string) => sql.raw(columns.map((name) => prefix + name).join());
const given = sql.placeholder;
const upsert = statement(sql`
  insert into ${tenants} (name, created_at, used_day, ${list("")})
  values (${given("name")}, ${given("now")}, ${given("day")}, ${sql.join(columns.map(given), sql`, `)})
  on conflict (name) do update set (${list("")}) = (${list("excluded.")})
  where (${list("tenants.")}) is not (${list("excluded.")})`);

const dayMs = 86_400_000;

/** The number of a UTC day, as `tenants.cpu_day` has it. */
export const dayOf = (now: number): number => Math.floor(now / dayMs);

/** What a tenant uses at a time (epoch ms) and may use. */
export function usageOf(row: TenantRow, now: number): Usage {
  return {
    tenant: row.name,
    usage: {
      queued: row.queued,
      running: row.running,
      stored_bytes: row.storedBytes,
      cpu_s_today: row.cpuDay === dayOf(now) ? row.cpuMs / 1000 : 0,
    },
    limits: {
      max_queued: row.maxQueued,
      max_running: row.maxRunning,
      max_stored_bytes: row.maxStoredBytes,
      max_cpu_s_day: row.maxCpuSDay,
      max_requests: row.maxRequests,
    },
  };
}
