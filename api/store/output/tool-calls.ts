import { and, asc, eq, gt, isNull, sql } from "drizzle-orm";
import { executions, runItems } from "../schema.ts";
import { query, rowsQuery } from "../statement.ts";
import { type AnyDb, perTenant, run, tenantRow } from "../tenant.ts";
import type { Database } from "../database.ts";
import type { Attempt } from "./chunks.ts";
import { type ItemRow, itemsOf } from "./items.ts";

const given = sql.placeholder;
const isCall = eq(runItems.kind, "tool_call");

export interface Answer {
  /** JSON, or the text of an error. */
  text: string;
  isError: boolean;
}

/** Stores the answer to a call of a running execution that waits for it; false if there is no such call. */
export async function answerCall(
  db: AnyDb,
  call: { executionId: string; number: number },
  { text, isError }: Answer,
): Promise<boolean> {
  const { rowsAffected } = await run(db, answer({ ...call, text, isError: Number(isError) }));
  return rowsAffected === 1;
}

const answer = perTenant(
  (own) => sql`
  update ${runItems} set answer = ${given("text")}, is_error = ${given("isError")}, answered = 1 + (
    select coalesce(max(other.answered), 0) from ${runItems} as other
    where other.execution_id = ${runItems.executionId} and other.attempt = ${runItems.attempt}
      and ${own(runItems, "other")})
  where ${runItems.executionId} = ${given("executionId")} and ${runItems.number} = ${given("number")}
    and ${isCall} and answered is null and ${own(runItems)}
    and exists (select 1 from ${executions} where ${executions.id} = ${runItems.executionId}
      and ${executions.attempt} = ${runItems.attempt} and ${executions.status} = 'running' and ${own(executions)})`,
);

const found = tenantRow((own) =>
  query
    .select({ number: runItems.number })
    .from(runItems)
    .where(
      and(
        eq(runItems.executionId, given("executionId")),
        eq(runItems.attempt, given("attempt")),
        eq(runItems.number, given("number")),
        isCall,
        own(runItems),
      ),
    ),
);

/** Whether an attempt has made a call with this number, answered or not. */
export async function hasCall(
  db: AnyDb,
  { executionId, attempt }: Attempt,
  number: number,
): Promise<boolean> {
  return (await found(db, { executionId, attempt, number })) !== undefined;
}

const pending = itemsOf(() => and(isCall, isNull(runItems.answered)));
const every = itemsOf(() => isCall);

/** The next few calls of an attempt that wait for an answer, after the one with this number. */
export async function pendingCalls(
  db: AnyDb,
  { executionId, attempt }: Attempt,
  number: number,
): Promise<ItemRow[]> {
  return pending(db, { executionId, attempt, number });
}

/** The same, also of those that have an answer. */
export async function callsAfter(
  db: AnyDb,
  { executionId, attempt }: Attempt,
  number: number,
): Promise<ItemRow[]> {
  return every(db, { executionId, attempt, number });
}

const answers = rowsQuery(
  query
    .select({ number: runItems.number, answer: runItems.answer, isError: runItems.isError })
    .from(runItems)
    .where(
      and(
        eq(runItems.executionId, given("executionId")),
        eq(runItems.attempt, given("attempt")),
        gt(runItems.answered, given("after")),
      ),
    )
    .orderBy(asc(runItems.answered))
    .limit(4),
);

/** The next few answers of an attempt after the first so many, in the order in which they came. */
export async function answersAfter(db: Database, { executionId, attempt }: Attempt, after: number) {
  return answers(db, { executionId, attempt, after });
}
