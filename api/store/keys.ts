import { and, asc, eq, getTableColumns, gt, isNull, lt, lte, or, sql } from "drizzle-orm";
import type { JsonObject } from "../../shared/json.ts";
import { type Actor, audited } from "./audit.ts";
import { type Database, toStatement } from "./database.ts";
import { apiKeys, formerKeys, tenants } from "./schema.ts";
import { query, rowQuery, rowsQuery } from "./statement.ts";
import { batch } from "./tenant.ts";
import { dayOf } from "./tenants.ts";

/** A key, and the latest time until which a former one is valid. */
export type KeyRow = typeof apiKeys.$inferSelect & { formerUntil: number | null };

const holds = (now: unknown) =>
  and(isNull(apiKeys.revokedAt), or(isNull(apiKeys.expiresAt), sql`${apiKeys.expiresAt} > ${now}`));

const [hash, now] = [sql.placeholder("hash"), sql.placeholder("now")];
const former = sql`(select key_id from ${formerKeys} where hash = ${hash} and until > ${now})`;

const holder = rowQuery(
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

/** The key that has this SHA-256, or had it before a rotation that is recent; undefined if none holds. */
export async function findKey(db: Database, hash: string, now: number) {
  return holder(db, { hash, now });
}

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

const single = rowQuery(
  query
    .select(shown)
    .from(apiKeys)
    .where(eq(apiKeys.id, sql.placeholder("id"))),
);
export async function readKey(db: Database, id: string): Promise<KeyRow | undefined> {
  return single(db, { id });
}

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
