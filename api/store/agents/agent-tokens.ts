import { and, asc, eq, gt, isNull, lt, or, sql } from "drizzle-orm";
import { transact, type Database } from "../database.ts";
import { agentTokens, joinCodes } from "../schema.ts";
import { type Actor, audited } from "../audit.ts";
import { decoder, query, rowQuery, rowsQuery, statement } from "../statement.ts";
import { batch } from "../tenant.ts";

export type AgentTokenRow = typeof agentTokens.$inferSelect;

const tokenByHash = rowQuery(
  query
    .select()
    .from(agentTokens)
    .where(
      and(
        or(
          eq(agentTokens.tokenHash, sql.placeholder("hash")),
          eq(agentTokens.nextHash, sql.placeholder("hash")),
        ),
        isNull(agentTokens.revokedAt),
      ),
    ),
);

/** Finds the token that has this SHA-256, or whose successor has it; undefined if there is none or it is revoked. */
export async function findToken(db: Database, hash: string): Promise<AgentTokenRow | undefined> {
  return tokenByHash(db, { hash });
}

const hashes = rowsQuery(
  query
    .select({ tokenHash: agentTokens.tokenHash, nextHash: agentTokens.nextHash })
    .from(agentTokens)
    .where(isNull(agentTokens.revokedAt)),
);

/** What `findToken` finds. */
export async function listTokenHashes(db: Database): Promise<string[]> {
  return (await hashes(db)).flatMap(({ tokenHash, nextHash }) =>
    nextHash === null ? [tokenHash] : [tokenHash, nextHash],
  );
}

const { revokedAt, rotationAskedAt } = agentTokens;
const ordersById = rowQuery(
  query
    .select({ revokedAt, rotationAskedAt })
    .from(agentTokens)
    .where(eq(agentTokens.id, sql.placeholder("id"))),
);

/** What operators have decided about a token; undefined for a configured one. */
export async function readOrders(
  db: Database,
  id: string,
): Promise<Pick<AgentTokenRow, "revokedAt" | "rotationAskedAt"> | undefined> {
  return ordersById(db, { id });
}

/** Records that a host is to replace its token. Returns false if there is no such token, or it is revoked. */
export async function askForRotation(db: Database, id: string, by: Actor): Promise<boolean> {
  const [asked] = await batch(db, [setAsked({ id, at: by.at }), audited(by, "host.rotate", id)]);
  return asked!.rowsAffected > 0;
}

const isGoodToken = and(eq(agentTokens.id, sql.placeholder("id")), isNull(revokedAt));
const setAsked = statement(
  sql`update ${agentTokens} set rotation_asked_at = ${sql.placeholder("at")} where ${isGoodToken}`,
);

export async function recordTokenUse(db: Database, id: string, now: number): Promise<void> {
  await db.orm.update(agentTokens).set({ lastUsedAt: now }).where(eq(agentTokens.id, id));
}

/** Replaces a token by its successor with this hash. */
export async function replaceToken(db: Database, nextHash: string, now: number): Promise<void> {
  await db.orm
    .update(agentTokens)
    .set({ tokenHash: nextHash, nextHash: null, lastUsedAt: now, rotationAskedAt: null })
    .where(eq(agentTokens.nextHash, nextHash));
}

/** Sets the successor of a token, and drops an earlier one. False if there is no such token. */
export async function setNextTokenHash(
  db: Database,
  id: string,
  nextHash: string,
): Promise<boolean> {
  const changed = await db.orm
    .update(agentTokens)
    .set({ nextHash })
    .where(and(eq(agentTokens.id, id), isNull(agentTokens.revokedAt)))
    .returning({ id: agentTokens.id });
  return changed.length > 0;
}

/** Adds a join code, and removes codes that can no longer be used or repeated. */
export async function addJoinCode(
  db: Database,
  { codeHash, name, expiresAt }: { codeHash: string; name: string | null; expiresAt: number },
  by: Actor,
): Promise<void> {
  await batch(db, [
    forgetCodes({ at: by.at }),
    insertCode({ codeHash, name, expiresAt, at: by.at }),
    audited(by, "host.invite", name ?? "", { expires_at: new Date(expiresAt).toISOString() }),
  ]);
}

const forgetCodes = statement(
  sql`delete from ${joinCodes} where ${lt(joinCodes.expiresAt, sql.placeholder("at"))}`,
);
const insertCode = statement(
  query.insert(joinCodes).values({
    codeHash: sql.placeholder("codeHash"),
    name: sql.placeholder("name"),
    createdAt: sql.placeholder("at"),
    expiresAt: sql.placeholder("expiresAt"),
  }),
);

/**
 * Exchanges a code for a token in one transaction: if two hosts send the same code, one of them gets it.
 *
 * @returns The token; undefined if the code is unknown, expired or used for another token.
 */
export async function exchangeCode(
  db: Database,
  codeHash: string,
  token: { id: string; tokenHash: string; name: string },
  now: number,
): Promise<{ id: string; name: string } | undefined> {
  const isTheCode = eq(joinCodes.codeHash, codeHash);
  const unused = and(isTheCode, isNull(joinCodes.tokenId), gt(joinCodes.expiresAt, now));
  const results = await transact(db, [
    sql`insert or ignore into ${agentTokens} (id, name, token_hash, created_at)
        select ${token.id}, coalesce(${joinCodes.name}, ${token.name}), ${token.tokenHash}, ${now}
        from ${joinCodes} where ${unused}`,
    sql`update ${joinCodes} set token_id = ${token.id} where ${and(isTheCode, isNull(joinCodes.tokenId))}
        and exists (select 1 from ${agentTokens} where ${agentTokens.id} = ${token.id})`,
    sql`select ${agentTokens.id}, ${agentTokens.name} from ${joinCodes}
        join ${agentTokens} on ${agentTokens.id} = ${joinCodes.tokenId}
        where ${and(isTheCode, eq(agentTokens.tokenHash, token.tokenHash), isNull(agentTokens.revokedAt))}`,
  ]);
  const [row] = results.at(-1)?.rows.map(readJoined) ?? [];
  return row;
}

const readJoined = decoder({ id: agentTokens.id, name: agentTokens.name });

/** Every token, the oldest first. */
export async function listTokens(db: Database): Promise<AgentTokenRow[]> {
  return db.orm.select().from(agentTokens).orderBy(asc(agentTokens.createdAt));
}

/** Revokes a token. False if it is unknown or already revoked. */
export async function revokeToken(db: Database, id: string, by: Actor): Promise<boolean> {
  const [revoked] = await batch(db, [
    setRevoked({ id, at: by.at }),
    audited(by, "host.revoke", id),
  ]);
  return revoked!.rowsAffected > 0;
}

const setRevoked = statement(sql`
  update ${agentTokens} set revoked_at = ${sql.placeholder("at")}, next_hash = null, rotation_asked_at = null
  where ${isGoodToken}`);
