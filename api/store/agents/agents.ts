import {
  and,
  eq,
  getTableColumns,
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
import { type Actor, audited } from "../audit.ts";
import type { AgentStatus } from "../../../shared/wire/agent/lease.ts";
import type { Database } from "../database.ts";
import { agents, agentTokens } from "../schema.ts";
import { query, statement } from "../statement.ts";
import { type AnyDb, batch, tenantRow, tenantRows } from "../tenant.ts";

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
const named = ["id", ...Object.keys(told)].map((name) => [name, sql.placeholder(name)]);
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

/** Whether the stored status of an agent is the same. */
export function isSameStatus(row: AgentRow, status: Told): boolean {
  const maxSessions = maxSessionsOf(status) ?? row.maxSessions;
  return Object.entries({ ...said(status), maxSessions }).every(
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

/** Updates only the time of last contact: the stored status may be newer than the caller's. */
export async function touchAgent(db: Database, id: string, now: number): Promise<void> {
  await db.client.execute(touch({ id, now }));
}

const touch = statement(
  query
    .update(agents)
    .set({ lastSeenAt: sql`${sql.placeholder("now")}` })
    .where(eq(agents.id, sql.placeholder("id"))),
);

export async function findAgent(db: AnyDb, id: string): Promise<AgentRow | undefined> {
  return agentById(db, { id });
}

const agentById = tenantRow(() =>
  query
    .select()
    .from(agents)
    .where(eq(agents.id, sql.placeholder("id"))),
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
  update ${agents} set draining_at = ${sql.placeholder("since")}
  where ${agents.id} = ${sql.placeholder("id")} and ${isNull(agents.leftAt)}`);

export async function forgetAgent(db: Database, id: string): Promise<void> {
  await db.orm.delete(agents).where(eq(agents.id, id));
}

/** Every known agent that has not left, by name. */
export const listAgents = tenantRows(() =>
  query.select().from(agents).where(isNull(agents.leftAt)).orderBy(agents.name),
);

/** Removes agents that have been silent since a time, and agents whose token was revoked. Returns their ids. */
export async function forgetAgents(db: Database, unseenSince: number): Promise<string[]> {
  const revoked = query
    .select({ id: agentTokens.id })
    .from(agentTokens)
    .where(isNotNull(agentTokens.revokedAt));
  const isGone = or(lt(agents.lastSeenAt, unseenSince), inArray(agents.tokenHash, revoked));
  // Reads first, because a delete would take the write lock each time.
  const gone = await db.orm.select({ id: agents.id }).from(agents).where(isGone);
  if (gone.length > 0) await db.orm.delete(agents).where(isGone);
  return gone.map(({ id }) => id);
}
