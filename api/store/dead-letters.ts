import { and, count, desc, eq, inArray, lt, min, sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { deadLetters, executions, payloads } from "./schema.ts";

const errorType = sql<string>`json_extract(${executions.error}, '$.type')`;

/** A dead letter with the part of its execution that it shows. */
export async function listDeadLetters(
  db: Database,
  type: string | undefined,
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
    .where(type === undefined ? undefined : eq(errorType, type))
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

export async function deadLetterStats(db: Database) {
  const byType = await db.orm
    .select({ type: errorType, n: count(), oldest: min(deadLetters.createdAt) })
    .from(deadLetters)
    .innerJoin(executions, eq(executions.id, deadLetters.executionId))
    .groupBy(errorType);
  return byType.map(({ type, n, oldest }) => ({ type, n, oldest: oldest ?? 0 }));
}

/** Removes one dead letter; its execution stays. False when there was none. */
export async function deleteDeadLetter(db: Database, id: number): Promise<boolean> {
  const deleted = await db.orm
    .delete(deadLetters)
    .where(eq(deadLetters.id, id))
    .returning({ id: deadLetters.id });
  return deleted.length === 1;
}

/** Removes dead letters older than a time; of many, only the first, so that none are searched. */
export async function pruneDeadLetters(db: Database, before: number): Promise<void> {
  const first = db.orm
    .select({ id: deadLetters.id })
    .from(deadLetters)
    .orderBy(deadLetters.id)
    .limit(500);
  await db.orm
    .delete(deadLetters)
    .where(and(inArray(deadLetters.id, first), lt(deadLetters.createdAt, before)));
}
