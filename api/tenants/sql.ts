import type { ResultSet } from "@libsql/client/web";
import { and, asc, desc, eq, getTableColumns, gt, isNull, lt, lte, or, sql } from "drizzle-orm";
import type { JsonObject } from "../../shared/json.ts";
import {
  type AuditAction,
  queuedOfBounded,
  type Quota,
  type TenantLimits,
  type Usage,
} from "../../shared/wire/access.ts";
import { type Database, toStatement } from "../store/database.ts";
import { apiKeys, audit, dayOf, formerKeys, tenants } from "../store/schema.ts";
import { decoder, given, query, rowQuery, rowsQuery, statement } from "../store/statement.ts";
import { type AnyDb, batch, type TenantFilled, tenantRow } from "../store/tenant.ts";

export type TenantRow = typeof tenants.$inferSelect;

/** Every tenant, by name. */
export const listTenants = rowsQuery(query.select().from(tenants).orderBy(tenants.name));

const byName = tenantRow((own) =>
  query
    .select()
    .from(tenants)
    .where(and(eq(tenants.name, given("name")), own(tenants))),
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
interface FullQuota {
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
export const isCpuUsed = sql`iif(${tenants.cpuDay} >= ${given("day")}, ${tenants.cpuMs}, 0) >= 1000 * ${tenants.maxCpuSDay}`;

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
const upsert = statement(sql`
  insert into ${tenants} (name, created_at, used_day, ${list("")})
  values (${given("name")}, ${given("now")}, ${given("day")}, ${sql.join(columns.map(given), sql`, `)})
  on conflict (name) do update set (${list("")}) = (${list("excluded.")})
  where (${list("tenants.")}) is not (${list("excluded.")})`);

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

/** A key, and the latest time until which a former one is valid. */
export type KeyRow = typeof apiKeys.$inferSelect & { formerUntil: number | null };

const holds = (now: unknown) =>
  and(isNull(apiKeys.revokedAt), or(isNull(apiKeys.expiresAt), sql`${apiKeys.expiresAt} > ${now}`));

const [hash, now] = [given("hash"), given("now")];
const former = sql`(select key_id from ${formerKeys} where hash = ${hash} and until > ${now})`;

/** The key that has this SHA-256, or had it before a rotation that is recent; undefined if none holds. */
export const findKey = rowQuery(
  query
    .select({
      id: apiKeys.id,
      name: apiKeys.name,
      tenant: apiKeys.tenant,
      scopes: apiKeys.scopes,
      formerUntil: sql<number | null>`(select until from ${formerKeys} where hash = ${hash})`,
      expiresAt: apiKeys.expiresAt,
      lastUsedAt: apiKeys.lastUsedAt,
    })
    .from(apiKeys)
    .where(and(or(eq(apiKeys.keyHash, hash), eq(apiKeys.id, former)), holds(now))),
);

const formerHashes = query
  .select({ hash: formerKeys.hash })
  .from(formerKeys)
  .innerJoin(apiKeys, eq(apiKeys.id, formerKeys.keyId))
  .where(and(gt(formerKeys.until, now), holds(now)));
const hashes = rowsQuery(
  query.select({ hash: apiKeys.keyHash }).from(apiKeys).where(holds(now)).unionAll(formerHashes),
);

/** What `findKey` finds. */
export async function listKeyHashes(db: Database, now: number): Promise<string[]> {
  return (await hashes(db, { now })).map((row) => row.hash);
}

const shown = {
  ...getTableColumns(apiKeys),
  formerUntil: sql<number | null>`(
    select max(until) from ${formerKeys} where key_id = ${sql.raw("api_keys.id")}
  )`,
};

export const readKey = rowQuery(
  query
    .select(shown)
    .from(apiKeys)
    .where(eq(apiKeys.id, given("id"))),
);

/** Every key, or those of a tenant, the oldest first. */
export async function listKeys(db: Database, tenant?: string): Promise<KeyRow[]> {
  const isTheirs = tenant === undefined ? undefined : eq(apiKeys.tenant, tenant);
  return db.orm.select(shown).from(apiKeys).where(isTheirs).orderBy(asc(apiKeys.id));
}

const any = rowQuery(query.select({ id: apiKeys.id }).from(apiKeys).where(holds(now)).limit(1));
export async function hasKey(db: Database, now: number): Promise<boolean> {
  return (await any(db, { now })) !== undefined;
}

export async function recordKeyUse(db: Database, id: string, now: number, before: number) {
  await db.orm
    .update(apiKeys)
    .set({ lastUsedAt: now })
    .where(and(eq(apiKeys.id, id), or(isNull(apiKeys.lastUsedAt), lt(apiKeys.lastUsedAt, before))));
}

/** Adds a key, and its tenant if there is none. */
export async function addKey(
  db: Database,
  key: typeof apiKeys.$inferInsert,
  by: Actor,
  detail: JsonObject,
): Promise<void> {
  const { id, tenant, createdAt } = key;
  const maybeTenant = query
    .insert(tenants)
    .values({ name: tenant, createdAt, usedDay: dayOf(createdAt) });
  await batch(db, [
    toStatement(maybeTenant.onConflictDoNothing()),
    toStatement(query.insert(apiKeys).values(key)),
    audited({ ...by, tenant }, "key.create", id, detail),
  ]);
}

/** The most former keys of one key that are valid at the same time. */
export const mostFormerKeys = 10;

/**
 * Gives a key another hash. The present one stays valid for `oldValidMs`, and former ones until the times that their own
 * rotations set; with 0 all of them are void at once. False if the key is void, or too many former ones are valid.
 */
export async function replaceKey(
  db: Database,
  { id, name, tenant }: KeyRow,
  keyHash: string,
  oldValidMs: number,
  by: Actor,
): Promise<boolean> {
  const isKept = oldValidMs > 0;
  const isTheirs = eq(formerKeys.keyId, id);
  const dropped = query
    .delete(formerKeys)
    .where(isKept ? lte(formerKeys.until, by.at) : or(isTheirs, lte(formerKeys.until, by.at)));
  const count = sql`(select count(*) from ${formerKeys} where ${isTheirs})`;
  const keep = sql`insert into ${formerKeys} (hash, key_id, until)
    select key_hash, id, ${by.at + oldValidMs} from ${apiKeys}
    where ${and(eq(apiKeys.id, id), holds(by.at))} and ${count} < ${mostFormerKeys}`;
  const isStored = sql`${apiKeys.keyHash} in (select hash from ${formerKeys})`;
  const change = query
    .update(apiKeys)
    .set({ keyHash })
    .where(and(eq(apiKeys.id, id), holds(by.at), isKept ? isStored : undefined));
  const detail = { name, old_valid_s: oldValidMs / 1000 };
  const done = await batch(db, [
    toStatement(dropped),
    ...(isKept ? [toStatement(keep)] : []),
    toStatement(change),
    audited({ ...by, tenant }, "key.rotate", id, detail),
  ]);
  return done.at(-2)!.rowsAffected > 0;
}

export async function voidKey(
  db: Database,
  { id, name, tenant }: KeyRow,
  by: Actor,
): Promise<void> {
  const change = query
    .update(apiKeys)
    .set({ revokedAt: by.at })
    .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)));
  await batch(db, [
    toStatement(change),
    audited({ ...by, tenant }, "key.revoke", id, { name }),
    toStatement(query.delete(formerKeys).where(eq(formerKeys.keyId, id))),
  ]);
}

/** Who changes something, from where and when. A command of an operator's shell has neither key nor address. */
export interface Actor {
  keyId: string | null;
  keyName: string;
  tenant: string;
  correlationId: string;
  clientIp: string | null;
  /** Epoch ms. */
  at: number;
}

/** The service itself. */
export const service = (correlationId: string, at: number): Actor => ({
  ...shell(correlationId, at),
  keyName: "service",
});

export type AuditRow = typeof audit.$inferSelect;

/** An operator's shell on the machine of the service. */
export const shell = (correlationId: string, at: number, tenant = "default"): Actor => ({
  keyId: null,
  keyName: "shell",
  tenant,
  correlationId,
  clientIp: null,
  at,
});

/**
 * The entry about a change. In a batch it stands right after the change, and is made only if that changed a
 * row. So nothing changes without its entry, and a repeat makes none.
 */
export function audited(
  by: Actor,
  action: AuditAction,
  target: string,
  detail: JsonObject | null = null,
): TenantFilled {
  return { values: { ...by, action, target, detail }, texts: { one: insert, all: insert } };
}

const insert = statement(sql`
  insert into ${audit} (at, key_id, key_name, tenant, action, target, detail, correlation_id, client_ip)
  select ${given("at")}, ${given("keyId")}, ${given("keyName")}, ${given("tenant")}, ${given("action")},
    ${given("target")}, ${sql.param(given("detail"), audit.detail)}, ${given("correlationId")}, ${given("clientIp")}
  where changes() > 0`);

interface AuditFilter {
  action?: AuditAction | undefined;
  tenant?: string | undefined;
  /** Id of an entry: only older ones. */
  before?: number | undefined;
}

/** Entries of all tenants, newest first. */
export async function listAudit(
  db: Database,
  { action, tenant, before }: AuditFilter,
  limit: number,
): Promise<AuditRow[]> {
  const filters = [
    action === undefined ? undefined : eq(audit.action, action),
    tenant === undefined ? undefined : eq(audit.tenant, tenant),
    before === undefined ? undefined : lt(audit.id, before),
  ];
  return db.orm
    .select()
    .from(audit)
    .where(and(...filters))
    .orderBy(desc(audit.id))
    .limit(limit);
}

/** Removes up to `rows` entries older than a time (epoch ms). Returns their number. */
export async function pruneAudit(db: Database, before: number, rows: number): Promise<number> {
  const { rowsAffected } = await db.client.execute(prune({ before, rows }));
  return rowsAffected;
}

const prune = statement(
  sql`delete from ${audit} where id in (${query
    .select({ id: audit.id })
    .from(audit)
    .where(lt(audit.at, given("before")))
    .limit(given("rows"))})`,
);
