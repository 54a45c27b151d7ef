import { and, eq, exists, lt, notExists, sql } from "drizzle-orm";
import { batch, insertWhere, type Database } from "./database.ts";
import { executions, payloads, queueLength } from "./schema.ts";
import { query, statement, type Statement } from "./statement.ts";

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
  const columns = Object.entries(execution).filter(([, value]) => value !== undefined);
  const insert = insertOf(
    columns.map(([name]) => name),
    key !== null,
  );
  const { id } = execution;
  const [inserted, , position, holder] = await batch(db, [
    insert({ ...Object.fromEntries(columns), maxQueueSize }),
    insertPayload({ id, code, input }),
    lastPlace,
    ...(key === null ? [] : [holderOfKey({ idempotencyKey: key })]),
  ]);
  if (inserted?.rowsAffected === 1) {
    return { kind: "accepted", queuePosition: Number(position?.rows[0]?.[0]) };
  }
  const existing = holder?.rows[0];
  return existing
    ? { kind: "existing", id: existing[0] as string, submissionHash: existing[1] as string }
    : { kind: "queue_full" };
}

const queued = query.select({ n: queueLength.queued }).from(queueLength);
/** The newest is the last in the queue: others were submitted before it. */
const lastPlace = statement(queued)({});
const selectHolder = query
  .select({ id: executions.id, hash: executions.submissionHash })
  .from(executions)
  .where(eq(executions.idempotencyKey, sql.placeholder("idempotencyKey")));
const holderOfKey = statement(selectHolder);

const inserts = new Map<string, Statement>();

/** The guarded insert of a row that has these columns. */
function insertOf(columns: string[], hasKey: boolean): Statement {
  const name = columns.join();
  const known = inserts.get(name);
  if (known) return known;
  const row = Object.fromEntries(columns.map((column) => [column, sql.placeholder(column)]));
  const hasRoom = lt(sql`(${queued})`, sql.placeholder("maxQueueSize"));
  const made = statement(
    insertWhere(executions, row as never, hasKey ? and(hasRoom, notExists(selectHolder)) : hasRoom),
  );
  inserts.set(name, made);
  return made;
}

const isStored = eq(executions.id, sql.placeholder("id"));
const stored = query.select({ seq: executions.seq }).from(executions).where(isStored);

const insertPayload = statement(
  insertWhere(
    payloads,
    {
      executionId: sql.placeholder("id"),
      code: sql.placeholder("code"),
      input: sql.placeholder("input"),
    } as never,
    exists(stored),
  ),
);
