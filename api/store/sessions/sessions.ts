import { and, desc, eq, lt, sql, type SQL } from "drizzle-orm";
import type { SessionStatus } from "../../../shared/wire/client/session.ts";
import { executions, isOpenSession, isRunningCall, sessions } from "../schema.ts";
import { listed, query } from "../statement.ts";
import { type AnyDb, listRows, tenantRow, tenantRows } from "../tenant.ts";

export type SessionRow = typeof sessions.$inferSelect;

const given = sql.placeholder;

const findBy = (column: typeof sessions.id | typeof sessions.leaseId) => {
  const find = tenantRow((own) =>
    query
      .select()
      .from(sessions)
      .where(and(eq(column, given("value")), own(sessions))),
  );
  return (db: AnyDb, value: string): Promise<SessionRow | undefined> => find(db, { value });
};
export const findSession = findBy(sessions.id);
export const findSessionByLease = findBy(sessions.leaseId);

/** Sessions by their ids, in any order. */
export async function findSessions(db: AnyDb, ids: string[]): Promise<SessionRow[]> {
  return ids.length === 0 ? [] : byIds(db, { ids: JSON.stringify(ids) });
}

const byIds = tenantRows((own) =>
  query
    .select()
    .from(sessions)
    .where(and(sql`${sessions.id} in ${listed("ids")}`, own(sessions))),
);

export interface SessionFilter {
  /** None: every status. */
  status?: SessionStatus | undefined;
  /** Id of a session: only those that were made before it. Ids are UUIDs of version 7, so they are ordered by time. */
  before?: string | undefined;
}

/** A page of sessions, newest first. */
export async function listSessions(
  db: AnyDb,
  { status, before }: SessionFilter,
  limit: number,
  offset: number,
): Promise<SessionRow[]> {
  return listRows(db, (own) =>
    query
      .select()
      .from(sessions)
      .where(
        and(
          status && isOf(status),
          before === undefined ? undefined : lt(sessions.id, before),
          own(sessions),
        ),
      )
      .orderBy(desc(sessions.id))
      .limit(limit)
      .offset(offset),
  );
}

/** All but a few sessions have ended, so open ones come by their index. */
const isOf = (status: SessionStatus): SQL =>
  status === "ended"
    ? sql`${sessions.status} = 'ended'`
    : sql`${isOpenSession} and +${sessions.status} = ${status}`;

/** The id of the call that runs in a session. */
export async function findRunningCall(db: AnyDb, id: string): Promise<string | undefined> {
  return (await runningCall(db, { id }))?.id;
}

const runningCall = tenantRow((own) =>
  query
    .select({ id: executions.id })
    .from(executions)
    .where(and(isRunningCall, eq(executions.sessionId, given("id")), own(executions))),
);

/** Which of these sessions have calls that wait or run. */
export async function busySessions(db: AnyDb, ids: string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const found = await withOpenCalls(db, { ids: JSON.stringify(ids) });
  return new Set(found.flatMap(({ id }) => id ?? []));
}

const withOpenCalls = tenantRows((own) =>
  query
    .selectDistinct({ id: executions.sessionId })
    .from(executions)
    .where(
      and(
        sql`${executions.sessionId} in ${listed("ids")}`,
        sql`${executions.endedAt} is null`,
        own(executions),
      ),
    ),
);
