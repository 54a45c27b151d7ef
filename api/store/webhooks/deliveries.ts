import { and, eq, sql } from "drizzle-orm";
import type { StoredEvent } from "../../domain/webhooks/event.ts";
import type { Database } from "../database.ts";
import { isPending, webhookDeliveries, webhookEvents } from "../schema.ts";
import { listed, query, rowsQuery, statement } from "../statement.ts";
import { type AnyDb, perTenant, run, tenantRow } from "../tenant.ts";

export type DeliveryRow = typeof webhookDeliveries.$inferSelect;

const given = sql.placeholder;
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

export interface ClaimTerms {
  now: number;
  /** A call that has no outcome by then is made again. */
  until: number;
  most: number;
  /** Limit for each receiver, so that slow ones do not take every place. */
  each: number;
  /** Calls in flight, which count for the limit of their receiver. */
  busy: ReadonlyMap<string, number>;
}

/** Takes deliveries that are due, the longest overdue first. No other process gets them until `until`. */
export async function claimDue(db: Database, terms: ClaimTerms): Promise<DeliveryRow[]> {
  return claim(db, { ...terms, busy: JSON.stringify([...terms.busy]) });
}

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
          select due.id, due.due_at, row_number() over (partition by due.receiver order by due.due_at, due.id)
            + coalesce((select value ->> 1 from json_each(${given("busy")})
              where value ->> 0 = due.receiver), 0) as nth
          from waiting, ${deliveries} as due
          where due.id in (
            select own.id from ${deliveries} as own
            where own.status = 'pending' and own.receiver = waiting.receiver
              and own.due_at <= ${given("now")}
            order by own.due_at limit ${given("each")}))
        where nth <= ${given("each")}
        order by due_at limit ${given("most")})`,
    )
    .returning(),
);

const { seq, tenant, executionId, type, data, createdAt } = webhookEvents;
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
  return findDelivery(db, id);
}

const again = perTenant(
  (own) => sql`
  update ${deliveries} set status = 'pending', tries = 0, due_at = ${given("now")},
    claimed_until = null, changed_at = ${given("now")}, ended_at = null
  where id = ${given("id")} and (claimed_until is null or claimed_until <= ${given("now")})
    and ${own(deliveries)}`,
);

export async function findDelivery(db: AnyDb, id: number): Promise<DeliveryRow | undefined> {
  return deliveryById(db, { id });
}

const deliveryById = tenantRow((own) =>
  query
    .select()
    .from(deliveries)
    .where(and(eq(deliveries.id, given("id")), own(deliveries))),
);
