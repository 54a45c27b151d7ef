import { and, count, eq, exists, lt, lte, notExists, sql } from "drizzle-orm";
import { batch, insertWhere, type Database } from "./database.ts";
import { executions, isQueued, payloads } from "./schema.ts";

export type NewExecution = typeof executions.$inferInsert & { code: Uint8Array; input: Uint8Array };

export type Submitted =
  | { kind: "accepted"; queuePosition: number }
  | { kind: "existing"; id: string; submissionHash: string }
  | { kind: "queue_full" };

/**
 * Stores a queued execution with its payload, unless the queue is full or its idempotency key is
 * taken. One durable transaction: when this resolves, the answer survives a crash.
 */
export async function submitExecution(
  db: Database,
  { code, input, ...execution }: NewExecution,
  maxQueueSize: number,
): Promise<Submitted> {
  const key = execution.idempotencyKey ?? null;
  const queued = db.orm.select({ n: count() }).from(executions).where(isQueued);
  const holderOfKey = db.orm
    .select({ id: executions.id, hash: executions.submissionHash })
    .from(executions)
    .where(eq(executions.idempotencyKey, sql.param(key)));
  const stored = db.orm.select({ seq: executions.seq }).from(executions);
  const isStored = eq(executions.id, execution.id);

  const [inserted, , position, holder] = await batch(db, [
    insertWhere(
      executions,
      execution,
      and(lt(sql`(${queued})`, maxQueueSize), notExists(holderOfKey)),
    ),
    insertWhere(
      payloads,
      { executionId: execution.id, code, input },
      exists(stored.where(isStored)),
    ),
    db.orm
      .select({ n: count() })
      .from(executions)
      .where(
        and(
          isQueued,
          lte(executions.seq, sql`(select seq from executions where id = ${execution.id})`),
        ),
      ),
    holderOfKey,
  ]);
  if (inserted?.rowsAffected === 1) {
    return { kind: "accepted", queuePosition: Number(position?.rows[0]?.[0]) };
  }
  const existing = holder?.rows[0];
  return existing
    ? { kind: "existing", id: existing[0] as string, submissionHash: existing[1] as string }
    : { kind: "queue_full" };
}
