import type { ApiKey, KeyFormat, NewApiKey, Scope } from "../../shared/wire/client/keys.ts";
import type { Deps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { timestamp } from "../jobs/record.ts";
import type { Actor } from "../store/audit.ts";
import {
  addKey,
  type KeyRow,
  listKeys,
  mostFormerKeys,
  readKey,
  replaceKey,
  voidKey,
} from "../store/keys.ts";

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
  const detail = { name, scopes, expires_at: expiresAt === null ? null : timestamp(expiresAt) };
  await addKey(db, row, by, detail);
  return { ...(await showKey({ db, now }, id)), key };
}

/** Every key, or those of a tenant, the oldest first. */
export async function showKeys(
  { db, now }: Pick<Deps, "db" | "now">,
  tenant?: string,
): Promise<ApiKey[]> {
  return (await listKeys(db, tenant)).map((row) => describe(row, now()));
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
  return describe(await requireKey(deps, id), deps.now());
}

async function requireKey({ db }: Pick<Deps, "db">, id: string): Promise<KeyRow> {
  const row = await readKey(db, id);
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
  if (format === "e2b") {
    return `e2b_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }
  const text = btoa(String.fromCharCode(...bytes));
  return `alk_${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

function describe(row: KeyRow, now: number): ApiKey {
  const { id, name, tenant, scopes, createdBy, formerUntil } = row;
  const isOldValid = row.revokedAt === null && (formerUntil ?? 0) > now;
  return {
    id,
    name,
    tenant,
    scopes,
    created_at: timestamp(row.createdAt),
    created_by: createdBy,
    expires_at: timeOrNull(row.expiresAt),
    revoked_at: timeOrNull(row.revokedAt),
    last_used_at: timeOrNull(row.lastUsedAt),
    ...(isOldValid && { old_valid_until: timestamp(formerUntil!) }),
  };
}

const timeOrNull = (ms: number | null): string | null => (ms === null ? null : timestamp(ms));
