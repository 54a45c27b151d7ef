import { sql } from "drizzle-orm";
import { transact, type Database } from "../database.ts";
import { webhookDeliveries, webhookEvents } from "../schema.ts";
import { statement } from "../statement.ts";

const given = sql.placeholder;
const findOld = statement(sql`
  select exists (select 1 from ${webhookEvents} where created_at < ${given("before")})`);

/**
 * Removes up to `rows` deliveries that have not changed since a time (epoch ms), and old events without
 * deliveries. A delivery that is tried changes at least once a day. Returns whether more may be left.
 */
export async function forgetDeliveries(
  db: Database,
  before: number,
  rows: number,
): Promise<boolean> {
  // Reads first, because a removal would take the write lock each time.
  const { rows: found } = await db.client.execute(findOld({ before }));
  if (!found[0]?.[0]) return false;
  const dropped = await transact(db, [
    dropDeliveries({ before, rows }),
    dropEvents({ before, rows }),
  ]);
  return dropped.some(({ rowsAffected }) => rowsAffected === rows);
}

const dropDeliveries = statement(sql`
  delete from ${webhookDeliveries} where id in (
    select id from ${webhookDeliveries} where changed_at < ${given("before")}
    order by changed_at limit ${given("rows")})`);
const dropEvents = statement(sql`
  delete from ${webhookEvents} where seq in (
    select seq from ${webhookEvents} where created_at < ${given("before")}
      and not exists (select 1 from ${webhookDeliveries} where event_seq = ${webhookEvents.seq})
    order by created_at limit ${given("rows")})`);
