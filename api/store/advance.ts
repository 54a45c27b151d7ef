import { and, eq, type SQL, type SQLWrapper } from "drizzle-orm";
import { transition, type ExecutionEvent, type Refusal } from "../domain/transition.ts";
import { batch, is, type Database } from "./database.ts";
import { executions } from "./schema.ts";

export type ExecutionRow = typeof executions.$inferSelect;

export type Advanced =
  | { kind: "changed"; execution: ExecutionRow }
  | { kind: "refused"; refusal: Refusal; execution: ExecutionRow }
  | { kind: "not_found" };

/** What else an event writes in the same transaction: columns of the row, guarded statements. */
export interface Companion {
  columns?: Partial<typeof executions.$inferInsert>;
  statements?: SQLWrapper[];
}

/** An execution by its id, or by the lease it was last given. */
export type Target = { id: string } | { leaseId: string };

/**
 * Applies an event to one execution: reads it, asks the state machine, and writes
 * the change where the row still is what was read. Whoever loses that race asks again.
 */
export async function advance(
  db: Database,
  target: Target,
  event: ExecutionEvent,
  now: number,
  companion: Companion = {},
): Promise<Advanced> {
  for (;;) {
    const [execution] = await db.orm.select().from(executions).where(matching(target));
    if (!execution) return { kind: "not_found" };
    const result = transition(execution, event, now);
    if (!result.ok) return { kind: "refused", refusal: result.refusal, execution };

    const change = { ...result.change, ...companion.columns };
    const [updated] = await batch(db, [
      db.orm.update(executions).set(change).where(unchangedSince(execution)),
      ...(companion.statements ?? []),
    ]);
    if (updated?.rowsAffected === 1) {
      return { kind: "changed", execution: { ...execution, ...change } as ExecutionRow };
    }
  }
}

function matching(target: Target): SQL {
  return "id" in target ? eq(executions.id, target.id) : eq(executions.leaseId, target.leaseId);
}

/** The columns that the state machine decides by. */
function unchangedSince(row: ExecutionRow): SQL | undefined {
  return and(
    eq(executions.id, row.id),
    eq(executions.status, row.status),
    eq(executions.attempt, row.attempt),
    is(executions.leaseId, row.leaseId),
    is(executions.leaseExpiresAt, row.leaseExpiresAt),
    is(executions.codeStartedAt, row.codeStartedAt),
    eq(executions.cancelRequested, row.cancelRequested),
  );
}
