import { and, count, desc, eq, inArray, lt, min } from "drizzle-orm";
import type { Database } from "../database.ts";
import { deadLetters, executions, payloads } from "../schema.ts";

/** A dead letter with the columns of its execution that it shows. */
export async function listDeadLetters(
  db: Database,
  { type, before }: { type?: string | undefined; before?: number | undefined },
  limit: number,
  offset: number,
) {
  return db.orm
    .select({
      id: deadLetters.id,
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
      ),
    )
    .orderBy(desc(deadLetters.id))
    .limit(limit)
    .offset(offset);
}
export type DeadLetterRow = Awaited<ReturnType<typeof listDeadLetters>>[number];

/** Code and input of the executions of some dead letters, by execution id. */
export async function deadLetterPayloads(db: Database, rows: DeadLetterRow[]) {
  const found = await db.orm
    .select({ id: payloads.executionId, code: payloads.code, input: payloads.input })
    .from(payloads)
    .where(
      inArray(
        payloads.executionId,
        rows.map((row) => row.executionId),
      ),
    );
  return new Map(found.map((payload) => [payload.id, payload]));
}

/** Number of dead letters of each error type, and time of the oldest (epoch ms). */
export async function deadLetterStats(db: Database) {
  const [byType, [first]] = await Promise.all([
    db.orm
      .select({ type: deadLetters.errorType, n: count() })
      .from(deadLetters)
      .groupBy(deadLetters.errorType),
    db.orm.select({ createdAt: min(deadLetters.createdAt) }).from(deadLetters),
  ]);
  return { byType, oldest: first?.createdAt ?? null };
}

/** Removes one dead letter; its execution stays. False if there was none. */
export async function deleteDeadLetter(db: Database, id: number): Promise<boolean> {
  const deleted = await db.orm
    .delete(deadLetters)
    .where(eq(deadLetters.id, id))
    .returning({ id: deadLetters.id });
  return deleted.length === 1;
}

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
