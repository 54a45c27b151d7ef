import {
  and,
  asc,
  desc,
  eq,
  getTableColumns,
  getTableName,
  gt,
  lt,
  sql,
  type SQL,
} from "drizzle-orm";
import type { WebhookDelivery, WebhookType } from "../../shared/wire/webhooks.ts";
import { type Database, transact } from "../store/database.ts";
import {
  isNewEvent,
  isPending,
  settings,
  tenants,
  webhookDeliveries,
  webhookEvents,
} from "../store/schema.ts";
import { given, listed, query, rowsQuery, statement } from "../store/statement.ts";
import { type AnyDb, listRows, perTenant, run, tenantRow, tenantRows } from "../store/tenant.ts";
import type { StoredEvent } from "./rules.ts";

export type DeliveryRow = typeof webhookDeliveries.$inferSelect;

const deliveries = webhookDeliveries;

/**
 * Every receiver that has pending deliveries, found by one look at the index for each: a receiver that
 * does not answer may have thousands of them.
 */
const waiting = sql`waiting(receiver) as (
  select min(receiver) from ${deliveries} where ${isPending}
  union all
  select (select min(receiver) from ${deliveries}
    where ${isPending} and receiver > waiting.receiver)
  from waiting where waiting.receiver is not null)`;

const findNext = statement(sql`
  with recursive ${waiting}
  select min((select min(due_at) from ${deliveries}
    where ${isPending} and receiver = waiting.receiver))
  from waiting where receiver is not null and receiver not in ${listed("except")}`);

/** When the next call is due (epoch ms), leaving out some receivers; undefined if none is pending. */
export async function nextDue(db: Database, except: string[]): Promise<number | undefined> {
  const { rows } = await db.client.execute(findNext({ except: JSON.stringify(except) }));
  const due = rows[0]?.[0] ?? null;
  return due === null ? undefined : Number(due);
}

interface ClaimTerms {
  now: number;
  /** A call that has no outcome by then is made again. */
  until: number;
  most: number;
  /** Limit for each receiver, so that slow ones do not take every place. */
  each: number;
  /** Calls in flight, which count for the limit of their receiver. */
  busy: ReadonlyMap<string, number>;
  /** The same by tenant: one with many slow receivers must not take every place. */
  busyTenants: ReadonlyMap<string, number>;
}

/**
 * Takes deliveries that are due: first those of tenants with the fewest calls in flight, of each the longest overdue
 * first. No other process gets them until `until`.
 */
export async function claimDue(db: Database, terms: ClaimTerms): Promise<DeliveryRow[]> {
  const busy = JSON.stringify([...terms.busy]);
  return claim(db, { ...terms, busy, busyTenants: JSON.stringify([...terms.busyTenants]) });
}

/** How many calls of a receiver or a tenant are in flight. */
const inFlight = (counts: "busy" | "busyTenants", whose: SQL) =>
  sql`coalesce((select value ->> 1 from json_each(${given(counts)}) where value ->> 0 = ${whose}), 0)`;

const claim = rowsQuery(
  query
    .update(deliveries)
    .set({
      tries: sql`${deliveries.tries} + 1`,
      attempts: sql`${deliveries.attempts} + 1`,
      claimedUntil: sql`${given("until")}`,
      dueAt: sql`${given("until")}`,
    })
    .where(
      sql`${deliveries.id} in (
        with recursive ${waiting}
        select id from (
          select due.id, due.due_at,
            row_number() over (partition by due.receiver order by due.due_at, due.id)
              + ${inFlight("busy", sql`due.receiver`)} as nth,
            row_number() over (partition by due.tenant order by due.due_at, due.id)
              + ${inFlight("busyTenants", sql`due.tenant`)} as nth_of_tenant
          from waiting, ${deliveries} as due
          where due.id in (
            select own.id from ${deliveries} as own
            where own.status = 'pending' and own.receiver = waiting.receiver
              and own.due_at <= ${given("now")}
            order by own.due_at limit ${given("each")}))
        where nth <= ${given("each")}
        order by nth_of_tenant, due_at limit ${given("most")})`,
    )
    .returning(),
);

const { seq, tenant, executionId, type, data, createdAt, callbackUrl } = webhookEvents;
const eventsBySeq = rowsQuery(
  query
    .select({ seq, tenant, executionId, type, data, createdAt })
    .from(webhookEvents)
    .where(sql`${seq} in ${listed("seqs")}`),
);

/** The events of deliveries, by their `eventSeq`. */
export async function eventsOf(
  db: Database,
  rows: readonly DeliveryRow[],
): Promise<Map<number, StoredEvent>> {
  const seqs = JSON.stringify(rows.map(({ eventSeq }) => eventSeq));
  const events = await eventsBySeq(db, { seqs });
  return new Map(events.map(({ seq, ...event }) => [seq, event]));
}

/** The outcome of a call. */
export interface CallOutcome {
  status: "pending" | "delivered" | "failed";
  /** When to call again, if it is pending. */
  dueAt: number;
  statusCode: number | null;
  error: string | null;
}

/**
 * Records the outcome of a claimed call. If the claim has expired and the call is being made again, only
 * a delivery that succeeded counts.
 */
export async function recordCall(
  db: Database,
  { id, attempts }: DeliveryRow,
  { status, dueAt, statusCode, error }: CallOutcome,
  now: number,
): Promise<void> {
  const endedAt = status === "pending" ? null : now;
  const values = { id, attempts, status, dueAt, statusCode, error, endedAt, now };
  await db.client.execute(record(values));
}

const record = statement(sql`
  update ${deliveries} set status = ${given("status")}, due_at = ${given("dueAt")},
    claimed_until = null, last_status_code = ${given("statusCode")}, last_error = ${given("error")},
    changed_at = ${given("now")}, ended_at = ${given("endedAt")}
  where id = ${given("id")} and ${isPending}
    and (attempts = ${given("attempts")} or ${given("status")} = 'delivered')`);

/** Gives a claimed call back that was not made or that this process cut off. It does not count as a try. */
export async function releaseCall(
  db: Database,
  { id, attempts }: DeliveryRow,
  now: number,
): Promise<void> {
  await db.client.execute(release({ id, attempts, now }));
}

const release = statement(sql`
  update ${deliveries} set claimed_until = null, due_at = ${given("now")}, tries = tries - 1,
    attempts = attempts - 1
  where id = ${given("id")} and ${isPending} and attempts = ${given("attempts")}`);

/** Makes a delivery due now, with all tries as for a new one. Undefined if it is unknown. */
export async function sendAgain(
  db: AnyDb,
  id: number,
  now: number,
): Promise<DeliveryRow | undefined> {
  // A call that is being made stays as it is.
  await run(db, again({ id, now }));
  return findDelivery(db, { id });
}

const again = perTenant(
  (own) => sql`
  update ${deliveries} set status = 'pending', tries = 0, due_at = ${given("now")},
    claimed_until = null, changed_at = ${given("now")}, ended_at = null
  where id = ${given("id")} and (claimed_until is null or claimed_until <= ${given("now")})
    and ${own(deliveries)}`,
);

export const findDelivery = tenantRow((own) =>
  query
    .select()
    .from(deliveries)
    .where(and(eq(deliveries.id, given("id")), own(deliveries))),
);

interface DeliveryFilter {
  status: WebhookDelivery["status"] | undefined;
  endpoint: string | undefined;
  jobId: string | undefined;
  /** Only deliveries with a lower id. */
  before: number | undefined;
}

/** Deliveries with the type of their event, newest first. */
export async function listDeliveries(
  db: AnyDb,
  { status, endpoint, jobId, before }: DeliveryFilter,
  limit: number,
): Promise<(DeliveryRow & { type: WebhookType })[]> {
  const d = webhookDeliveries;
  const isWanted = [
    status && eq(d.status, status),
    endpoint === undefined ? undefined : eq(d.receiver, endpoint),
    jobId === undefined ? undefined : eq(d.executionId, jobId),
    before === undefined ? undefined : lt(d.id, before),
  ];
  return listRows(db, (own) =>
    query
      .select({ ...getTableColumns(d), type: sql<WebhookType>`${webhookEvents.type}` })
      .from(d)
      .innerJoin(webhookEvents, eq(webhookEvents.seq, d.eventSeq))
      .where(and(...isWanted, own(d), own(webhookEvents)))
      .orderBy(desc(d.id))
      .limit(limit),
  );
}

/** Type of a delivery's event. */
export async function typeOf(db: AnyDb, { eventSeq }: DeliveryRow): Promise<WebhookType> {
  return (await typeBySeq(db, { eventSeq }))!.type;
}

const typeBySeq = tenantRow((own) =>
  query
    .select({ type: webhookEvents.type })
    .from(webhookEvents)
    .where(and(eq(webhookEvents.seq, given("eventSeq")), own(webhookEvents))),
);

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

/** Events that have no deliveries yet, oldest first. */
export const newEvents = rowsQuery(
  query
    .select({ seq, tenant, executionId, type, callbackUrl })
    .from(webhookEvents)
    .where(isNewEvent)
    .orderBy(asc(seq))
    .limit(given("most")),
);

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

/**
 * Makes every execution of the tenant that ends before `wanted` (epoch ms) an event. If the stored time is earlier, it
 * stores `extended`, so that the next calls only read.
 *
 * @returns The time until which every end is an event.
 */
export async function keepListening(db: AnyDb, wanted: number, extended: number): Promise<number> {
  const kept = await findUntil(db);
  const until = kept?.until ?? 0;
  if (until >= wanted) return until;
  await run(db, keepUntil({ extended }));
  return extended;
}

const findUntil = tenantRow((own) =>
  query
    .select({ until: sql<number>`min(coalesce(${tenants.listeningUntil}, 0))` })
    .from(tenants)
    .where(own(tenants)),
);
const keepUntil = perTenant(
  (own) => sql`
  update ${tenants} set listening_until = max(coalesce(listening_until, 0), ${given("extended")})
  where ${own(tenants)}`,
);

/**
 * The number of the tenant's newest event; 0 if there is none. Later ones have higher numbers. That of all tenants
 * together would tell when others' jobs end.
 */
export async function lastEvent(db: AnyDb): Promise<number> {
  return (await findLast(db))?.last ?? 0;
}

const findLast = tenantRow((own) =>
  query
    .select({ last: sql<number | null>`max(${seq})` })
    .from(webhookEvents)
    .where(own(webhookEvents)),
);
/** Events with a higher number than `after`, oldest first. */
export const eventsAfter = tenantRows((own) =>
  query
    .select({ seq, tenant, executionId, type, data, createdAt })
    .from(webhookEvents)
    .where(and(gt(seq, given("after")), own(webhookEvents)))
    .orderBy(asc(seq))
    .limit(given("most")),
);

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
