import { and, sql } from "drizzle-orm";
import { limits } from "../../../shared/wire/limits.ts";
import { executions, isOpenSession, sessions } from "../schema.ts";
import { query } from "../statement.ts";
import { type AnyDb, type Owner, tenantRow } from "../tenant.ts";
import type { SessionRow } from "./sessions.ts";

/** Changes of a session that has not ended. Each returns the changed session, or undefined if it was refused. */

const given = sql.placeholder;
const isIt = (own: Owner) =>
  sql`${sessions.id} = ${given("id")} and ${isOpenSession} and ${own(sessions)}`;

export type SessionChange = Partial<Pick<SessionRow, "expiresAt" | "idleTimeoutS" | "metadata">>;

/** Changes what is given. */
export async function changeSession(
  db: AnyDb,
  id: string,
  change: SessionChange,
): Promise<SessionRow | undefined> {
  const { expiresAt = null, idleTimeoutS = null, metadata = null } = change;
  const setsIdle = Number("idleTimeoutS" in change);
  return update(db, { id, expiresAt, setsIdle, idleTimeoutS, metadata });
}

const update = tenantRow((own) =>
  query
    .update(sessions)
    .set({
      expiresAt: sql`coalesce(${given("expiresAt")}, ${sessions.expiresAt})`,
      idleTimeoutS: sql`iif(${given("setsIdle")}, ${given("idleTimeoutS")}, ${sessions.idleTimeoutS})`,
      metadata: sql`coalesce(${sql.param(given("metadata"), sessions.metadata)}, ${sessions.metadata})`,
    })
    .where(isIt(own))
    .returning(),
);

/** Adds a context, unless the session has as many as it may. */
export async function addContext(
  db: AnyDb,
  id: string,
  context: string,
): Promise<SessionRow | undefined> {
  return add(db, { id, context });
}

const add = tenantRow((own) =>
  query
    .update(sessions)
    .set({ contexts: sql`json_insert(${sessions.contexts}, '$[#]', ${given("context")})` })
    .where(
      and(
        isIt(own),
        // One more is the default one.
        sql`json_array_length(${sessions.contexts}) < ${limits.contextsMax - 1}`,
      ),
    )
    .returning(),
);

/** Removes a context in which no call waits or runs. */
export async function removeContext(
  db: AnyDb,
  id: string,
  context: string,
): Promise<SessionRow | undefined> {
  return remove(db, { id, context });
}

const remove = tenantRow((own) =>
  query
    .update(sessions)
    .set({
      contexts: sql`(select json_group_array(value) from json_each(${sessions.contexts})
        where value <> ${given("context")})`,
    })
    .where(
      and(
        isIt(own),
        sql`exists (select 1 from json_each(${sessions.contexts}) where value = ${given("context")})`,
        sql`not exists (select 1 from ${executions} where ${executions.sessionId} = ${sessions.id}
          and ${executions.context} = ${given("context")} and ${executions.endedAt} is null
          and ${own(executions)})`,
      ),
    )
    .returning(),
);
