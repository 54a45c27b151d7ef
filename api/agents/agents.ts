import {
  and,
  asc,
  eq,
  getTableColumns,
  gt,
  inArray,
  isNotNull,
  isNull,
  lt,
  notExists,
  or,
  sql,
  type SQL,
  type SQLWrapper,
} from "drizzle-orm";
import { hex } from "../../shared/bytes.ts";
import type { JoinReply, JoinRequest } from "../../shared/wire/access.ts";
import type { AgentStatus } from "../../shared/wire/leases.ts";
import type { Deps } from "../deps.ts";
import { AppError, unauthorized } from "../errors.ts";
import { type Database, transact } from "../store/database.ts";
import { agents, agentTokens, joinCodes } from "../store/schema.ts";
import {
  decoder,
  given,
  keptRowsQuery,
  query,
  rowQuery,
  rowsQuery,
  statement,
} from "../store/statement.ts";
import { batch } from "../store/tenant.ts";
import { type Actor, audited } from "../tenants/sql.ts";

export type AgentRow = typeof agents.$inferSelect;

/** What an agent tells with a renewal or a poll. */
type Told = AgentStatus & { free_sessions?: number | undefined };

/** Stores an agent's status. */
export async function recordAgent(
  db: Database,
  status: Told,
  tokenHash: string,
  now: number,
): Promise<void> {
  const maxSessions = maxSessionsOf(status) ?? null;
  const row = { id: status.agent.id, ...said(status), maxSessions, tokenHash, lastSeenAt: now };
  await db.client.execute(record(row));
}

const { id: _id, drainingAt: _drainingAt, leftAt: _leftAt, ...told } = getTableColumns(agents);
const named = ["id", ...Object.keys(told)].map((name) => [name, given(name)]);
const record = statement(
  query
    .insert(agents)
    .values(Object.fromEntries(named) as never)
    .onConflictDoUpdate({
      target: agents.id,
      set: Object.fromEntries(
        Object.entries(told).map(([name, column]) => [
          name,
          column === agents.maxSessions
            ? sql`coalesce(excluded.max_sessions, ${column})`
            : sql`excluded.${sql.identifier(column.name)}`,
        ]),
      ),
    }),
);

/** Whether the stored status of an agent is the same, apart from its ready sandboxes. */
export function isSameStatus(row: AgentRow, status: Told): boolean {
  const maxSessions = maxSessionsOf(status) ?? row.maxSessions;
  const { warm: _warm, pool: _pool, ...told } = said(status);
  return isSame(row, { ...told, maxSessions });
}

/** Whether the stored numbers of an agent's ready sandboxes are the same. */
export function isSamePool(row: AgentRow, { warm, pool }: Told): boolean {
  return isSame(row, { warm, pool });
}

function isSame(row: AgentRow, told: Partial<AgentRow>): boolean {
  return Object.entries(told).every(
    ([name, value]) => JSON.stringify(row[name as keyof AgentRow]) === JSON.stringify(value),
  );
}

function said({ agent, slots, gpus, warm, pool, engine, breaker, images }: AgentStatus) {
  const { name, version, labels, accepts } = agent;
  return { name, version, labels, accepts, slots, gpus, warm, pool, engine, breaker, images };
}

/** Undefined in a renewal, which does not report it. */
function maxSessionsOf({ free_sessions, sessions = [] }: Told): number | undefined {
  return free_sessions === undefined ? undefined : sessions.length + free_sessions;
}

/**
 * Updates the time of last contact, and the numbers of ready sandboxes where they are not stored. The rest of the stored
 * status may be newer than the caller's.
 */
export async function touchAgent(
  db: Database,
  { agent, warm, pool }: AgentStatus,
  now: number,
  isStored: boolean,
): Promise<void> {
  const seen = { id: agent.id, now };
  await db.client.execute(isStored ? touch(seen) : touchPool({ ...seen, warm, pool }));
}

const lastSeenAt = sql`${given("now")}`;
const isTheAgent = eq(agents.id, given("id"));
const touch = statement(query.update(agents).set({ lastSeenAt }).where(isTheAgent));
const touchPool = statement(
  query
    .update(agents)
    .set({
      lastSeenAt,
      warm: given("warm") as never,
      pool: given("pool") as never,
    })
    .where(isTheAgent),
);

/** Marks an agent as gone: it is no longer listed, and gets no more leases. */
export async function markLeft(db: Database, id: string, now: number): Promise<void> {
  await db.orm.update(agents).set({ leftAt: now }).where(eq(agents.id, id));
}

/** Condition of every claim: a poll from before the agent left or was drained may be answered afterwards. */
export function takesWork(id: SQLWrapper | string): SQL {
  return notExists(
    query
      .select({ id: agents.id })
      .from(agents)
      .where(and(eq(agents.id, id), or(isNotNull(agents.leftAt), isNotNull(agents.drainingAt)))),
  );
}

/** Drains an agent, or ends that. False if it is unknown or has left. */
export async function setDraining(
  db: Database,
  id: string,
  drains: boolean,
  by: Actor,
): Promise<boolean> {
  const [changed] = await batch(db, [
    setDrainingAt({ id, since: drains ? by.at : null }),
    audited(by, drains ? "agent.drain" : "agent.resume", id),
  ]);
  return changed!.rowsAffected > 0;
}

const setDrainingAt = statement(sql`
  update ${agents} set draining_at = ${given("since")}
  where ${agents.id} = ${given("id")} and ${isNull(agents.leftAt)}`);

export async function forgetAgent(db: Database, id: string): Promise<void> {
  await db.orm.delete(agents).where(eq(agents.id, id));
}

/** Removes agents that have been silent since a time, and marks those as gone whose token was revoked. Returns their ids. */
export async function forgetAgents(
  db: Database,
  unseenSince: number,
  now: number,
): Promise<string[]> {
  const revoked = query
    .select({ id: agentTokens.id })
    .from(agentTokens)
    .where(isNotNull(agentTokens.revokedAt));
  const isSilent = lt(agents.lastSeenAt, unseenSince);
  // These stay while their leases last: nobody else may have their ids, or post for their leases.
  const isRevoked = and(isNull(agents.leftAt), inArray(agents.tokenHash, revoked));
  // Reads first, because a write would take the write lock each time.
  const gone = await db.orm.select({ id: agents.id }).from(agents).where(or(isSilent, isRevoked));
  if (gone.length > 0) {
    await db.orm.update(agents).set({ leftAt: now }).where(isRevoked);
    await db.orm.delete(agents).where(isSilent);
  }
  return gone.map(({ id }) => id);
}

/**
 * Returns when the agent was asked to replace its token; null if it is not asked.
 *
 * @throws AppError 401 when the token of a waiting agent has been revoked.
 */
export async function refuseRevoked({ db }: Deps, tokenId: string): Promise<number | null> {
  // A configured token is not among them.
  const [orders] = await ordersById(db, { id: tokenId });
  if (typeof orders?.revokedAt === "number") throw unauthorized("The agent's token was revoked.");
  return orders?.rotationAskedAt ?? null;
}

/** Makes a join code. One host can use it once, until it expires. Only its hash is stored. */
export async function invite(
  { db, sha256 }: Pick<Deps, "db" | "sha256">,
  { name, expiresInMs }: { name: string | null; expiresInMs: number },
  by: Actor,
): Promise<string> {
  const code = `alj_${hex(crypto.getRandomValues(new Uint8Array(20)))}`;
  const expiresAt = by.at + expiresInMs;
  await addJoinCode(db, { codeHash: await sha256(code), name, expiresAt }, by);
  return code;
}

/** @throws AppError 401 when the code is unknown, expired or used by another host. */
export async function join(
  { db, newId, now, sha256, log }: Deps,
  { code, token_sha256, name }: JoinRequest,
): Promise<JoinReply> {
  const token = { id: newId(), tokenHash: token_sha256, name };
  const agent = await exchangeCode(db, await sha256(code), token, now());
  if (!agent) {
    throw unauthorized(
      "The join code is unknown, used or expired. Ask the API's operator for a new one: npm run agents -- invite.",
    );
  }
  log.info("agent {name} ({id}) has joined", agent);
  return { agent };
}

/** @throws AppError 409 when the presented token is not one that an agent joined with. */
export async function rotate({ db }: Deps, tokenId: string, nextHash: string): Promise<void> {
  const known = await findToken(db, { hash: nextHash });
  if (known?.id === tokenId) return;
  if (known || !(await setNextTokenHash(db, tokenId, nextHash))) {
    throw new AppError(
      "conflict",
      "Only the token of an agent that joined can be rotated; a configured one is changed in agent_tokens.",
    );
  }
}

export type AgentTokenRow = typeof agentTokens.$inferSelect;

/** The token that has this SHA-256, or whose successor has it; undefined if there is none or it is revoked. */
export const findToken = rowQuery(
  query
    .select()
    .from(agentTokens)
    .where(
      and(
        or(eq(agentTokens.tokenHash, given("hash")), eq(agentTokens.nextHash, given("hash"))),
        isNull(agentTokens.revokedAt),
      ),
    ),
);

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
/** What operators have decided about a token. */
const ordersById = keptRowsQuery(
  query
    .select({ revokedAt, rotationAskedAt })
    .from(agentTokens)
    .where(eq(agentTokens.id, given("id"))),
);

/** Records that a host is to replace its token. Returns false if there is no such token, or it is revoked. */
export async function askForRotation(db: Database, id: string, by: Actor): Promise<boolean> {
  const [asked] = await batch(db, [setAsked({ id, at: by.at }), audited(by, "host.rotate", id)]);
  return asked!.rowsAffected > 0;
}

const isGoodToken = and(eq(agentTokens.id, given("id")), isNull(revokedAt));
const setAsked = statement(
  sql`update ${agentTokens} set rotation_asked_at = ${given("at")} where ${isGoodToken}`,
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
async function setNextTokenHash(db: Database, id: string, nextHash: string): Promise<boolean> {
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
  sql`delete from ${joinCodes} where ${lt(joinCodes.expiresAt, given("at"))}`,
);
const insertCode = statement(
  query.insert(joinCodes).values({
    codeHash: given("codeHash"),
    name: given("name"),
    createdAt: given("at"),
    expiresAt: given("expiresAt"),
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
  update ${agentTokens} set revoked_at = ${given("at")}, next_hash = null, rotation_asked_at = null
  where ${isGoodToken}`);
