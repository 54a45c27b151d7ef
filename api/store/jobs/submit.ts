import { and, eq, exists, lt, notExists, sql } from "drizzle-orm";
import { batch, insertWhere, type Database } from "../database.ts";
import { nextTurn, position } from "./line.ts";
import { executions, payloads, queueLength } from "../schema.ts";
import { query, statement, type Statement } from "../statement.ts";

export type NewExecution = Omit<typeof executions.$inferInsert, "turn" | "place"> & {
  code: Uint8Array;
  input: Uint8Array;
  /** Priority of its job type: number of turns by which it moves forward; default 0. */
  priority?: number;
};

export type Submitted =
  | { kind: "accepted"; queuePosition: number }
  | { kind: "existing"; id: string; submissionHash: string }
  | { kind: "queue_full" };

/**
 * Stores a queued execution with its payload in one transaction, unless the queue is full or its
 * idempotency key is taken. When this resolves, the execution survives a crash.
 */
export async function submitExecution(
  db: Database,
  { code, input, priority = 0, ...execution }: NewExecution,
  maxQueueSize: number,
): Promise<Submitted> {
  const key = execution.idempotencyKey ?? null;
  const columns = Object.entries(execution).filter(([, value]) => value !== undefined);
  const insert = insertOf(
    columns.map(([name]) => name),
    key !== null,
  );
  const { id } = execution;
  const [inserted, , place, holder] = await batch(db, [
    insert({ keyId: null, ...Object.fromEntries(columns), priority, maxQueueSize }),
    insertPayload({ id, code, input }),
    placeInQueue({ id, most: countedMost }),
    ...(key === null ? [] : [holderOfKey({ idempotencyKey: key })]),
  ]);
  if (inserted?.rowsAffected === 1) {
    return { kind: "accepted", queuePosition: Number(place?.rows[0]?.[0]) };
  }
  const existing = holder?.rows[0];
  return existing
    ? { kind: "existing", id: existing[0] as string, submissionHash: existing[1] as string }
    : { kind: "queue_full" };
}

const queued = query.select({ n: queueLength.queued }).from(queueLength);
const placeInQueue = statement(position);
/** A position from here on is given as the length of the queue: a submission must not count a long queue. */
const countedMost = 100;
const selectHolder = query
  .select({ id: executions.id, hash: executions.submissionHash })
  .from(executions)
  .where(eq(executions.idempotencyKey, sql.placeholder("idempotencyKey")));
const holderOfKey = statement(selectHolder);

const inserts = new Map<string, Statement>();

/** The guarded insert of a row with these columns. */
function insertOf(columns: string[], hasKey: boolean): Statement {
  const name = columns.join();
  const known = inserts.get(name);
  if (known) return known;
  const given = columns.map((column) => [column, sql.placeholder(column)] as const);
  const turn = nextTurn(sql`${sql.placeholder("keyId")}`, sql`${sql.placeholder("jobType")}`);
  const place = sql`${turn} - ${sql.placeholder("priority")}`;
  const row = { ...Object.fromEntries(given), turn, place };
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
