import { base64url, hex } from "../../shared/bytes.ts";
import type {
  ApiKey,
  KeyFormat,
  NewApiKey,
  Scope,
  Tenant,
  TenantLimits,
} from "../../shared/wire/access.ts";
import type { ClientDeps, Deps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { optionalTimestamp, timestamp } from "../jobs/read.ts";
import { dayOf } from "../store/schema.ts";
import {
  type Actor,
  addKey,
  findTenant,
  fullQuota,
  type KeyRow,
  listKeys,
  listTenants,
  type More,
  mostFormerKeys,
  ownTenant,
  readKey,
  replaceKey,
  setLimits,
  type TenantRow,
  usageOf,
  voidKey,
} from "./sql.ts";

type KeyDeps = Pick<Deps, "db" | "now" | "newId" | "sha256">;

/** Who asks, and what that key may do. */
export interface Maker extends Actor {
  scopes: readonly Scope[];
}

export interface NewKey {
  name: string;
  tenant: string;
  scopes: Scope[];
  expiresInMs: number | null;
  format?: KeyFormat;
}

/** Makes a key, and its tenant if there is none. @throws AppError 403 for a scope that the maker lacks. */
export async function createKey(
  { db, now, newId, sha256 }: KeyDeps,
  by: Maker,
  { name, tenant, scopes, expiresInMs, format }: NewKey,
): Promise<NewApiKey> {
  refuseMore(by, scopes);
  const key = generate(format);
  const [id, createdAt] = [newId(), now()];
  const expiresAt = expiresInMs === null ? null : createdAt + expiresInMs;
  const keyHash = await sha256(key);
  const row = { id, tenant, name, scopes, createdAt, expiresAt, keyHash, createdBy: by.keyId };
  const detail = { name, scopes, expires_at: optionalTimestamp(expiresAt) };
  await addKey(db, row, by, detail);
  return { ...(await showKey({ db, now }, id)), key };
}

/** Every key, or those of a tenant, the oldest first. */
export async function showKeys(
  { db, now }: Pick<Deps, "db" | "now">,
  tenant?: string,
): Promise<ApiKey[]> {
  return (await listKeys(db, tenant)).map((row) => describeKey(row, now()));
}

/**
 * Replaces a key; its id stays. The old one holds for a while.
 *
 * @throws AppError 404 for an unknown key, 409 for a void one, 403 for one with a scope that the maker lacks.
 */
export async function rotateKey(
  deps: KeyDeps,
  by: Maker,
  id: string,
  oldValidMs: number,
  format?: KeyFormat,
): Promise<NewApiKey> {
  const { db, sha256 } = deps;
  const before = await requireKey(deps, id);
  refuseMore(by, before.scopes);
  const key = generate(format);
  const isReplaced = await replaceKey(db, before, await sha256(key), oldValidMs, by);
  if (isReplaced) return { ...(await showKey(deps, id)), key };
  const isVoid = before.revokedAt !== null || (before.expiresAt ?? Infinity) <= by.at;
  throw new AppError(
    "conflict",
    isVoid
      ? `Key ${before.name} is revoked or has expired: make a new one with POST /keys.`
      : `Key ${before.name} has ${mostFormerKeys} former keys that are still valid: wait until one expires, or void all of them with old_valid_s 0.`,
  );
}

/** Voids a key. A repeat changes nothing. @throws AppError 404 for an unknown key. */
export async function revokeKey(deps: KeyDeps, by: Actor, id: string): Promise<ApiKey> {
  await voidKey(deps.db, await requireKey(deps, id), by);
  return showKey(deps, id);
}

async function showKey(deps: Pick<Deps, "db" | "now">, id: string): Promise<ApiKey> {
  return describeKey(await requireKey(deps, id), deps.now());
}

async function requireKey({ db }: Pick<Deps, "db">, id: string): Promise<KeyRow> {
  const row = await readKey(db, { id });
  if (!row) throw notFound(`Key ${id}`);
  return row;
}

/** Nobody gets at more with a key than with the key that makes it. */
function refuseMore(by: Maker, scopes: readonly Scope[]): void {
  const more = scopes.filter((scope) => !by.scopes.includes(scope));
  if (more.length === 0) return;
  throw new AppError(
    "forbidden",
    `A key can have only scopes of the key that makes or rotates it, which lacks ${more.join(", ")}.`,
  );
}

function generate(format: KeyFormat = "airlock"): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return format === "e2b" ? `e2b_${hex(bytes)}` : `alk_${base64url(bytes)}`;
}

function describeKey(row: KeyRow, now: number): ApiKey {
  const { id, name, tenant, scopes, createdBy, formerUntil } = row;
  const isOldValid = row.revokedAt === null && (formerUntil ?? 0) > now;
  return {
    id,
    name,
    tenant,
    scopes,
    created_at: timestamp(row.createdAt),
    created_by: createdBy,
    expires_at: optionalTimestamp(row.expiresAt),
    revoked_at: optionalTimestamp(row.revokedAt),
    last_used_at: optionalTimestamp(row.lastUsedAt),
    ...(isOldValid && { old_valid_until: timestamp(formerUntil!) }),
  };
}

type TenantDeps = Pick<Deps, "db" | "now">;

/** Every tenant, by name. */
export async function showTenants({ db, now }: TenantDeps): Promise<Tenant[]> {
  return (await listTenants(db)).map((row) => describeTenant(row, now()));
}

/** @throws AppError 404 for an unknown tenant. */
export async function showTenant({ db, now }: TenantDeps, name: string): Promise<Tenant> {
  const row = await findTenant(db, name);
  if (!row) throw notFound(`Tenant ${name}`);
  return describeTenant(row, now());
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

function describeTenant(row: TenantRow, now: number): Tenant {
  const { usage, limits } = usageOf(row, now);
  return { name: row.name, created_at: timestamp(row.createdAt), limits, usage };
}

/**
 * The refusal by a limit of the tenant; undefined if it has room for this many more jobs and bytes. The
 * insert was refused before: this says why. Several jobs are an atomic batch.
 *
 * @param read The tenant as the insert saw it. Read later, it may have room again.
 */
export async function quotaExceeded(
  { db, now }: ClientDeps,
  more: More,
  read?: { tenant: TenantRow | undefined },
): Promise<AppError | undefined> {
  const row = read ? read.tenant : await ownTenant(db);
  const full = row && fullQuota(row, more, now());
  if (!full) return undefined;
  const never = whyNever(row, more);
  if (never !== undefined)
    return more.jobs > 1
      ? batchTooLarge(more.jobs, never)
      : new AppError("too_large", `This can never be accepted: ${never}.`);
  const { quota, limit, used } = full;
  const whose = `Tenant ${row.name}`;
  const midnightS = Math.ceil((dayOf(now()) + 1) * 86_400 - now() / 1000);
  const [detail, retryAfterS] = {
    max_queued: [`${whose} has ${used} waiting jobs (max_queued ${limit}).`, 5],
    max_stored_bytes: [
      `${whose} stores ${used} bytes, and ${more.bytes} more are above its limit (max_stored_bytes ${limit}): remove executions or files, whose bytes count for another hour.`,
      60,
    ],
    max_cpu_s_day: [
      `The jobs of tenant ${row.name} have used ${used} s of CPU time today (max_cpu_s_day ${limit}); the day ends at midnight UTC.`,
      midnightS,
    ],
  }[quota] as [string, number];
  return new AppError("quota_exceeded", detail, full, { "Retry-After": String(retryAfterS) });
}

/** Why an atomic batch, a job or a file does not even fit if nothing else of its tenant waits or is stored. */
function whyNever(
  { name, maxQueued, maxStoredBytes }: TenantRow,
  { jobs, bytes }: More,
): string | undefined {
  if (maxQueued !== null && jobs > Math.max(1, maxQueued))
    return `tenant ${name} may have ${maxQueued} waiting jobs (max_queued)`;
  if (maxStoredBytes !== null && bytes > maxStoredBytes)
    return `tenant ${name} may store ${maxStoredBytes} bytes (max_stored_bytes), and these are ${bytes}`;
  return undefined;
}

/** The refusal of an atomic batch. */
export function batchTooLarge(jobs: number, why: string): AppError {
  const detail = `An atomic batch of ${jobs} jobs can never be accepted: ${why}.`;
  return new AppError("batch_too_large", detail);
}
