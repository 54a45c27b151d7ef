import { and, count, desc, eq, inArray, lt, sql } from "drizzle-orm";
import { type Actor, audited } from "../audit.ts";
import type { Database } from "../database.ts";
import { listed, query } from "../statement.ts";
import { batch, perTenant, type AnyDb, listRows, tenantRow, tenantRows } from "../tenant.ts";
import { deadLetters, executions, payloads } from "../schema.ts";

/** A dead letter with the columns of its execution that it shows. */
export async function listDeadLetters(
  db: AnyDb,
  { type, before }: { type?: string | undefined; before?: number | undefined },
  limit: number,
  offset: number,
) {
  return listRows(db, (own) =>
    query
      .select({
        id: deadLetters.id,
        tenant: deadLetters.tenant,
        createdAt: deadLetters.createdAt,
        executionId: executions.id,
        jobType: executions.jobType,
        error: executions.error,
        attempt: executions.attempt,
        clientIp: executions.clientIp,
        correlationId: executions.correlationId,
      })
      .from(deadLetters)
      .innerJoin(executions, eq(executions.id, deadLetters.executionId))
      .where(
        and(
          type === undefined ? undefined : eq(deadLetters.errorType, type),
          before === undefined ? undefined : lt(deadLetters.id, before),
          own(deadLetters),
          own(executions),
        ),
      )
      .orderBy(desc(deadLetters.id))
      .limit(limit)
      .offset(offset),
  );
}
export type DeadLetterRow = Awaited<ReturnType<typeof listDeadLetters>>[number];

/** Code and input of the executions of some dead letters, by execution id. */
export async function deadLetterPayloads(db: AnyDb, rows: DeadLetterRow[]) {
  const ids = rows.map((row) => row.executionId);
  const found = await payloadsOf(db, { ids: JSON.stringify(ids) });
  return new Map(found.map((payload) => [payload.id, payload]));
}

const payloadsOf = tenantRows((own) =>
  query
    .select({ id: payloads.executionId, code: payloads.code, input: payloads.input })
    .from(payloads)
    .where(and(sql`${payloads.executionId} in ${listed("ids")}`, own(payloads))),
);

/** Number of dead letters of each error type, and time of the oldest (epoch ms). */
export async function deadLetterStats(db: AnyDb) {
  const [counts, first] = await Promise.all([countByType(db), findOldest(db)]);
  const byType = new Map<string, number>();
  for (const { type, n } of counts) byType.set(type, (byType.get(type) ?? 0) + n);
  return { byType, oldest: first?.createdAt ?? null };
}

const countByType = tenantRows((own) =>
  query
    .select({ type: deadLetters.errorType, n: count() })
    .from(deadLetters)
    .where(own(deadLetters))
    // In the order of the index: sorting those of all tenants by type takes eight times as long.
    .groupBy(deadLetters.tenant, deadLetters.errorType),
);
const findOldest = tenantRow((own) =>
  query
    .select({ createdAt: deadLetters.createdAt })
    .from(deadLetters)
    .where(own(deadLetters))
    // Ids are times.
    .orderBy(deadLetters.id)
    .limit(1),
);

/** Removes one dead letter; its execution stays. False if there was none. */
export async function deleteDeadLetter(db: AnyDb, id: number, by: Actor): Promise<boolean> {
  const [dropped] = await batch(db, [drop({ id }), audited(by, "dlq.delete", String(id))]);
  return dropped!.rowsAffected > 0;
}

const drop = perTenant(
  (own) =>
    sql`delete from ${deadLetters} where ${deadLetters.id} = ${sql.placeholder("id")} and ${own(deadLetters)}`,
);

/** Removes up to `rows` dead letters older than a time (epoch ms), oldest first. Returns their number. */
export async function pruneDeadLetters(
  db: Database,
  before: number,
  rows: number,
): Promise<number> {
  const old = db.orm
    .select({ id: deadLetters.id })
    .from(deadLetters)
    .where(lt(deadLetters.createdAt, before))
    .orderBy(deadLetters.createdAt)
    .limit(rows);
  const removed = await db.orm
    .delete(deadLetters)
    .where(inArray(deadLetters.id, old))
    .returning({ id: deadLetters.id });
  return removed.length;
}
