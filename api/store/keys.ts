import { and, asc, eq, isNull, lt, or, sql } from "drizzle-orm";
import type { JsonObject } from "../../shared/json.ts";
import { type Actor, audited } from "./audit.ts";
import { type Database, toStatement } from "./database.ts";
import { apiKeys, tenants } from "./schema.ts";
import { query, rowQuery, rowsQuery } from "./statement.ts";
import { batch } from "./tenant.ts";

export type KeyRow = typeof apiKeys.$inferSelect;

const holds = (now: unknown) =>
  and(isNull(apiKeys.revokedAt), or(isNull(apiKeys.expiresAt), sql`${apiKeys.expiresAt} > ${now}`));

const holder = rowQuery(
  query
    .select({
      id: apiKeys.id,
      name: apiKeys.name,
      tenant: apiKeys.tenant,
      scopes: apiKeys.scopes,
      keyHash: apiKeys.keyHash,
      previousUntil: apiKeys.previousUntil,
      expiresAt: apiKeys.expiresAt,
      lastUsedAt: apiKeys.lastUsedAt,
    })
    .from(apiKeys)
    .where(
      and(
        or(
          eq(apiKeys.keyHash, sql.placeholder("hash")),
          and(
            eq(apiKeys.previousHash, sql.placeholder("hash")),
            sql`${apiKeys.previousUntil} > ${sql.placeholder("now")}`,
          ),
        ),
        holds(sql.placeholder("now")),
      ),
    ),
);

/** The key that has this SHA-256, or had it before a rotation that is recent; undefined if none holds. */
export async function findKey(db: Database, hash: string, now: number) {
  return holder(db, { hash, now });
}

const hashes = rowsQuery(
  query
    .select({
      keyHash: apiKeys.keyHash,
      previousHash: apiKeys.previousHash,
      previousUntil: apiKeys.previousUntil,
    })
    .from(apiKeys)
    .where(holds(sql.placeholder("now"))),
);

/** What `findKey` finds. */
export async function listKeyHashes(db: Database, now: number): Promise<string[]> {
  return (await hashes(db, { now })).flatMap(({ keyHash, previousHash, previousUntil }) =>
    previousHash !== null && previousUntil! > now ? [keyHash, previousHash] : [keyHash],
  );
}

const single = rowQuery(
  query
    .select()
    .from(apiKeys)
    .where(eq(apiKeys.id, sql.placeholder("id"))),
);
export async function readKey(db: Database, id: string): Promise<KeyRow | undefined> {
  return single(db, { id });
}

/** Every key, or those of a tenant, the oldest first. */
export async function listKeys(db: Database, tenant?: string): Promise<KeyRow[]> {
  const isTheirs = tenant === undefined ? undefined : eq(apiKeys.tenant, tenant);
  return db.orm.select().from(apiKeys).where(isTheirs).orderBy(asc(apiKeys.id));
}

const any = rowQuery(
  query
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(holds(sql.placeholder("now")))
    .limit(1),
);
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
  const maybeTenant = query.insert(tenants).values({ name: tenant, createdAt });
  await batch(db, [
    toStatement(maybeTenant.onConflictDoNothing()),
    toStatement(query.insert(apiKeys).values(key)),
    audited({ ...by, tenant }, "key.create", id, detail),
  ]);
}

/** Gives a key another hash; the one before holds for a while. False if the key is void. */
export async function replaceKey(
  db: Database,
  { id, name, tenant }: KeyRow,
  keyHash: string,
  oldValidMs: number,
  by: Actor,
): Promise<boolean> {
  const isKept = oldValidMs > 0;
  const change = query
    .update(apiKeys)
    .set({
      keyHash,
      previousHash: isKept ? sql`${apiKeys.keyHash}` : null,
      previousUntil: isKept ? by.at + oldValidMs : null,
    })
    .where(and(eq(apiKeys.id, id), holds(by.at)));
  const detail = { name, old_valid_s: oldValidMs / 1000 };
  const [changed] = await batch(db, [
    toStatement(change),
    audited({ ...by, tenant }, "key.rotate", id, detail),
  ]);
  return changed!.rowsAffected > 0;
}

export async function voidKey(
  db: Database,
  { id, name, tenant }: KeyRow,
  by: Actor,
): Promise<void> {
  const change = query
    .update(apiKeys)
    .set({ revokedAt: by.at, previousHash: null, previousUntil: null })
    .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt)));
  await batch(db, [toStatement(change), audited({ ...by, tenant }, "key.revoke", id, { name })]);
}
