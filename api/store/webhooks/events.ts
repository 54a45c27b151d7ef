import { getTableName, asc, eq, sql } from "drizzle-orm";
import type { WebhookType } from "../../../shared/wire/client/webhook-type.ts";
import { transact, type Database } from "../database.ts";
import { isNewEvent, settings, tenants, webhookDeliveries, webhookEvents } from "../schema.ts";
import { listed, query, rowsQuery, statement } from "../statement.ts";

const typesSetting = "webhook_types";

/**
 * Keeps which types of events configured endpoints want: the trigger writes only those. Nothing is
 * written if the setting is right, or if none was ever wanted.
 */
export async function keepWantedTypes(db: Database, types: readonly WebhookType[]): Promise<void> {
  const value = JSON.stringify(types);
  const [kept] = await db.orm
    .select({ value: settings.value })
    .from(settings)
    .where(eq(settings.name, typesSetting));
  if ((kept?.value ?? "[]") === value) return;
  await db.orm
    .insert(settings)
    .values({ name: typesSetting, value })
    .onConflictDoUpdate({ target: settings.name, set: { value } });
}

export interface NewEvent {
  seq: number;
  tenant: string;
  executionId: string;
  type: WebhookType;
  callbackUrl: string | null;
}

/** A receiver of an event. */
export interface Receiver {
  /** Name of a configured endpoint, or origin of a callback. */
  receiver: string;
  callbackUrl: string | null;
}

const { seq, tenant, executionId, type, callbackUrl } = webhookEvents;
const findNew = rowsQuery(
  query
    .select({ seq, tenant, executionId, type, callbackUrl })
    .from(webhookEvents)
    .where(isNewEvent)
    .orderBy(asc(seq))
    .limit(sql.placeholder("most")),
);

/** Events that have no deliveries yet, oldest first. */
export function newEvents(db: Database, most: number): Promise<NewEvent[]> {
  return findNew(db, { most });
}

/**
 * Makes a delivery for each receiver of each event, in one transaction. If another process was first,
 * nothing changes. Events without a receiver are dropped, unless somebody listened for them.
 */
export async function fanOut(
  db: Database,
  events: readonly { event: NewEvent; receivers: readonly Receiver[] }[],
  now: number,
): Promise<void> {
  const rows = events.flatMap(({ event, receivers }) =>
    receivers.map((one) => [event.seq, event.executionId, one.receiver, one.callbackUrl]),
  );
  const seqsOf = (some: typeof events) => JSON.stringify(some.map(({ event }) => event.seq));
  await transact(db, [
    insertDeliveries({ rows: JSON.stringify(rows), now }),
    dropUnwanted({ seqs: seqsOf(events.filter(({ receivers }) => receivers.length === 0)) }),
    markFannedOut({ seqs: seqsOf(events) }),
  ]);
}

const given = sql.placeholder;
// Ids are times, so that the ids of one tenant do not count the deliveries of others.
const insertDeliveries = statement(sql`
  insert into ${webhookDeliveries}
    (id, tenant, event_seq, execution_id, receiver, callback_url, due_at, created_at, changed_at)
  select max(${given("now")} * 100, 1 + coalesce((select seq from sqlite_sequence
      where name = ${getTableName(webhookDeliveries)}), 0)) + row.key,
    ${tenant}, ${seq}, row.value ->> 1, row.value ->> 2, row.value ->> 3,
    ${given("now")}, ${given("now")}, ${given("now")}
  from json_each(${given("rows")}) as row
    join ${webhookEvents} on ${seq} = row.value ->> 0 and ${isNewEvent}
  where true
  on conflict do nothing`);
const markFannedOut = statement(
  sql`update ${webhookEvents} set is_fanned_out = 1 where ${seq} in ${listed("seqs")} and ${isNewEvent}`,
);
const dropUnwanted = statement(
  sql`delete from ${webhookEvents} where ${seq} in ${listed("seqs")} and ${isNewEvent}
    and not exists (select 1 from ${tenants} where ${tenants.name} = ${tenant}
      and ${tenants.listeningUntil} > ${webhookEvents.createdAt})`,
);
