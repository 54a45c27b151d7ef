import { sql } from "drizzle-orm";
import type { Database } from "../database.ts";
import { executions, sessions } from "../schema.ts";
import { statement } from "../statement.ts";

/** Removes up to `rows` sessions that ended before a time and have no call any more. Returns their number. */
export async function forgetSessions(db: Database, before: number, rows: number): Promise<number> {
  const { rowsAffected } = await db.client.execute(forget({ before, rows }));
  return rowsAffected;
}

const given = sql.placeholder;
const forget = statement(sql`
  delete from ${sessions} where seq in (
    select ${sessions.seq} from ${sessions}
    where ${sessions.status} = 'ended' and ${sessions.endedAt} < ${given("before")}
      and not exists (select 1 from ${executions} where ${executions.sessionId} = ${sessions.id})
    limit ${given("rows")})`);
