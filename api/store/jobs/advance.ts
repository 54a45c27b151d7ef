import type { InStatement } from "@libsql/client/web";
import { and, sql } from "drizzle-orm";
import {
  lossOf,
  transition,
  type ExecutionEvent,
  type Loss,
  type Refusal,
} from "../../domain/transition.ts";
import { withLoss } from "./attempts.ts";
import { findByLease, findExecution } from "./read.ts";
import { isShared } from "./line.ts";
import { executions, queueLength, tenants } from "../schema.ts";
import { query, type Values } from "../statement.ts";
import { type AnyDb, batch, type Owner, perTenant } from "../tenant.ts";
import { unchangedUpdates } from "../unchanged.ts";
import type { ExecutionRow } from "./row.ts";

export type Advanced =
  /**
   * `letsStart`: which agent may now start a job that its tenant's limit or share has held back: any, or only the agent
   * that ran this execution.
   */
  | { kind: "changed"; execution: ExecutionRow; letsStart: "any" | "own" | null }
  | { kind: "refused"; refusal: Refusal; execution: ExecutionRow }
  | { kind: "not_found" };

/** Further writes of an event in the same transaction: columns of the row, and guarded statements. */
export interface Companion {
  columns?: Partial<typeof executions.$inferInsert>;
  statements?: InStatement[];
}

/** An execution by its id, or by its last lease. */
export type Target = { id: string } | { leaseId: string };

/**
 * Applies an event to one execution: reads the row, calls `transition`, and writes the change if the row
 * is still the same. If another write came first, it starts again.
 *
 * @param read The row, if the caller has just read it; saves the first read.
 */
export async function advance(
  db: AnyDb,
  target: Target,
  event: ExecutionEvent,
  now: number,
  companion: Companion = {},
  read?: ExecutionRow,
): Promise<Advanced> {
  for (;;) {
    const execution =
      read ??
      (await ("id" in target ? findExecution(db, target.id) : findByLease(db, target.leaseId)));
    read = undefined;
    if (!execution) return { kind: "not_found" };
    const result = transition(execution, event, now);
    if (!result.ok) return { kind: "refused", refusal: result.refusal, execution };

    const change = { ...result.change, ...companion.columns };
    const loss = lossOf(event);
    const [updated] = await batch(db, [
      updateUnchanged(execution, change, loss !== undefined, loss && lossValues(loss, now)),
      ...(companion.statements ?? []),
    ]);
    const [row] = updated?.rows ?? [];
    if (row) {
      const { followed_until: followedUntil, lets_start: letsStart } = row;
      return {
        kind: "changed",
        execution: { ...execution, ...change, followedUntil } as ExecutionRow,
        letsStart: letsStart as "any" | "own" | null,
      };
    }
  }
}

const decidingColumns = [
  "id",
  "status",
  "attempt",
  "leaseId",
  "leaseExpiresAt",
  "codeStartedAt",
  "cancelRequested",
] as const;
const afterLoss = withLoss({
  outcome: sql.placeholder("loss.outcome"),
  error: sql.placeholder("loss.error"),
  now: sql.placeholder("loss.now"),
});

/** Null unless jobs wait. The limit of a tenant counts all agents together, its share counts one agent. */
const letsStart = (own: Owner) =>
  sql<string | null>`case
    when ${executions.endedAt} is null or (select ${queueLength.queued} from ${queueLength}) = 0 then null
    when exists (select 1 from ${tenants} ${own.anybody(tenants, "the execution's own tenant")}
      where ${tenants.name} = ${executions.tenant} and ${tenants.maxRunning} is not null
        and ${tenants.queued} > 0) then 'any'
    when ${isShared(executions.endedAt)} ${own.anybody(tenants, "how many are in use")} then 'own' end`.as(
    "lets_start",
  );

const updateUnchanged = unchangedUpdates(executions, decidingColumns, (set, isUnchanged, isLoss) =>
  perTenant((own) =>
    query
      .update(executions)
      .set({ ...set, ...(isLoss && { lostAttempts: afterLoss }) })
      .where(and(...isUnchanged, own(executions)))
      // A client may have begun to follow since the row was read: it must be told of the change too.
      .returning({ followedUntil: executions.followedUntil, letsStart: letsStart(own) }),
  ),
);

function lossValues({ outcome, error }: Loss, now: number): Values {
  return {
    "loss.outcome": outcome,
    "loss.error": error && JSON.stringify(error),
    "loss.now": now,
  };
}
