import { and, asc, eq, isNull, lt, or, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { apiKeys, tenants } from "./schema.ts";
import { query, rowQuery, rowsQuery } from "./statement.ts";

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
      maxRequests: tenants.maxRequests,
    })
    .from(apiKeys)
    .innerJoin(tenants, eq(tenants.name, apiKeys.tenant))
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

const single = rowQuery(
  query
    .select()
    .from(apiKeys)
    .where(eq(apiKeys.id, sql.placeholder("id"))),
);
export async function readKey(db: Database, id: string): Promise<KeyRow | undefined> {
  return single(db, { id });
}

const list = rowsQuery(query.select().from(apiKeys).orderBy(asc(apiKeys.id)));
/** Every key, the oldest first. */
export async function listKeys(db: Database): Promise<KeyRow[]> {
  return list(db);
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

/** Statements that change keys, for `audited`. The last one of each changes a row, or nothing is changed. */
export const keyChanges = {
  /** Makes the tenant too. */
  create: (key: typeof apiKeys.$inferInsert) => [
    query
      .insert(tenants)
      .values({ name: key.tenant, createdAt: key.createdAt })
      .onConflictDoNothing(),
    query.insert(apiKeys).values(key),
  ],
  rotate: (id: string, keyHash: string, now: number, oldUntil: number) => [
    query
      .update(apiKeys)
      .set({
        keyHash,
        previousHash: oldUntil > now ? sql`${apiKeys.keyHash}` : null,
        previousUntil: oldUntil > now ? oldUntil : null,
      })
      .where(and(eq(apiKeys.id, id), holds(now))),
  ],
  revoke: (id: string, now: number) => [
    query
      .update(apiKeys)
      .set({ revokedAt: now, previousHash: null, previousUntil: null })
      .where(and(eq(apiKeys.id, id), isNull(apiKeys.revokedAt))),
  ],
};
