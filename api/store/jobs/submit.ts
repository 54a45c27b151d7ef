import { and, lt, sql, type SQL } from "drizzle-orm";
import { insertWhere } from "../database.ts";
import { insertFiles, type NewInputFile } from "./input-files.ts";
import { nextTurn, position } from "./line.ts";
import { bytesOf } from "./row.ts";
import { callsWaiting, nextCall, positionOfCall, takesCall } from "./call-place.ts";
import {
  type CallOptions,
  executions,
  payloads,
  queueLength,
  tenants,
  tombstones,
} from "../schema.ts";
import type { ProgramChoice } from "../../domain/program.ts";
import type { ToolChoice } from "../../domain/tools.ts";
import { query } from "../statement.ts";
import { columnsOfTenant, dayOf, decodeTenant, isCpuUsed, type TenantRow } from "../tenants.ts";
import { type AnyDb, batch, type Owner, perTenant, type TenantStatement } from "../tenant.ts";

export type NewExecution = Omit<
  typeof executions.$inferInsert,
  "turn" | "rank" | "call" | "submittedBytes" | "outputBytes"
> & {
  code: Uint8Array;
  input: Uint8Array;
  stdin?: Uint8Array | undefined;
  args?: string[] | undefined;
  program?: ProgramChoice | undefined;
  tools?: ToolChoice | undefined;
  files?: NewInputFile[] | undefined;
  /** Of a call, beside its `sessionId` and `context`. */
  callOptions?: CallOptions | undefined;
  /** Priority of its job type: number of turns by which it moves forward; default 0. */
  priority?: number;
};

export type Submitted =
  | { kind: "accepted"; queuePosition: number }
  | { kind: "existing"; id: string; submissionHash: string }
  /** The job that had the idempotency key was removed. */
  | { kind: "removed"; id: string }
  /**
   * The queue, or what its tenant may use, which is as it was at that moment. Of a call: its session has ended or has
   * too many calls that wait.
   */
  | { kind: "full"; tenant: TenantRow | undefined };

/**
 * Stores a queued execution with its payload in one transaction, unless the queue (of a call: that of its session) is full, a limit of its
 * tenant is reached, or its idempotency key is taken. When this resolves, the execution survives a crash.
 */
export async function submitExecution(
  db: AnyDb,
  {
    code,
    input,
    stdin,
    args,
    program,
    tools,
    callOptions,
    files = [],
    priority = 0,
    ...execution
  }: NewExecution,
  maxQueueSize: number,
): Promise<Submitted> {
  const key = execution.idempotencyKey ?? null;
  const { id, tenant = "default", createdAt, sessionId = null, metadata, requirements } = execution;
  const content = { code, input, stdin, args, tools, callOptions, files, metadata, requirements };
  const row = { ...execution, tenant, submittedBytes: submittedBytes(content) };
  const [inserted, , standing, holder] = await batch(db, [
    insertOf(row, key !== null)({ ...row, priority, maxQueueSize, day: dayOf(createdAt) }),
    insertPayload({
      tenant,
      id,
      code,
      input,
      stdin: stdin ?? null,
      args: args ?? null,
      program: program ?? null,
      tools: tools ?? null,
      call: callOptions ?? null,
    }),
    sessionId === null
      ? positionInQueue({ tenant, id, most: countedMost })
      : positionInSession({ tenant, id }),
    ...(key === null ? [] : [holderOfKey({ tenant, idempotencyKey: key })]),
    ...insertFiles(id, files, tenant),
  ]);
  if (inserted?.rowsAffected === 1) {
    return { kind: "accepted", queuePosition: Number(standing?.rows[0]?.["position"]) };
  }
  const existing = key === null ? undefined : holder?.rows[0];
  if (!existing) return { kind: "full", tenant: decodeTenant(standing?.rows[0]) };
  const [existingId, submissionHash] = [existing[0] as string, existing[1] as string | null];
  return submissionHash === null
    ? { kind: "removed", id: existingId }
    : { kind: "existing", id: existingId, submissionHash };
}

const encoder = new TextEncoder();
const jsonBytes = (value: unknown): number => encoder.encode(JSON.stringify(value)).length;

/** Bytes of a submission that are stored: see the column. */
export function submittedBytes({
  code,
  input,
  stdin,
  args,
  tools,
  callOptions,
  files = [],
  metadata,
  requirements,
}: Pick<
  NewExecution,
  | "code"
  | "input"
  | "stdin"
  | "args"
  | "tools"
  | "callOptions"
  | "files"
  | "metadata"
  | "requirements"
>): number {
  // The environment of a call goes with its end.
  const kept = callOptions && { ...callOptions, env: undefined };
  const needed = requirements.length > 0 && requirements;
  const inJson = [args, tools, kept, metadata, needed].filter(Boolean);
  return (
    bytesOf(code, input, stdin, ...files.map(({ content }) => content)) +
    inJson.reduce<number>((sum, value) => sum + jsonBytes(value), 0)
  );
}

const queued = query.select({ n: queueLength.queued }).from(queueLength);
/** The row of the tenant, and the position of the execution if it was inserted. */
const standingOf = (place: (own: Owner) => SQL) =>
  perTenant(
    (own) => sql`select ${columnsOfTenant}, (${place(own)}) as position
      from (select 1) left join ${tenants} on ${own(tenants)}`,
  );
const positionInQueue = standingOf(position);
const positionInSession = standingOf(positionOfCall);
/** From here on, a position is the number of its tenant's waiting executions: a submission must not count a long queue. */
const countedMost = 100;
/**
 * Finds the execution that has an idempotency key, or had it until it was removed (then without its hash).
 */
export const holderOf = (own: Owner, key: SQL): SQL => sql`
  select ${executions.id} as holder_id, ${executions.submissionHash} as submission_hash
  from ${executions}
  where ${own(executions)} and ${executions.idempotencyKey} = ${key}
  union all select ${tombstones.executionId}, null from ${tombstones}
  where ${own(tombstones)} and ${tombstones.idempotencyKey} = ${key}`;

const selectHolder = (own: Owner) => holderOf(own, sql`${sql.placeholder("idempotencyKey")}`);
const holderOfKey = perTenant(selectHolder);

const inserts = new Map<string, TenantStatement>();

/** The guarded insert of a row with these columns. */
function insertOf(values: Readonly<Record<string, unknown>>, hasKey: boolean): TenantStatement {
  const columns = Object.keys(values).filter((column) => values[column] !== undefined);
  const name = columns.join();
  const known = inserts.get(name);
  if (known) return known;
  const given = columns.map((column) => [column, sql.placeholder(column)] as const);
  const isCall = columns.includes("sessionId");
  const { queued: its, maxQueued, storedBytes, maxStoredBytes } = tenants;
  const isQueueFull = isCall ? sql`0` : sql`${its} >= ${maxQueued}`;
  const isFull = sql`(${isQueueFull} or ${isCpuUsed}
    or ${storedBytes} + ${sql.placeholder("submittedBytes")} > ${maxStoredBytes})`;
  const made = perTenant((own) => {
    const place = isCall ? { call: nextCall(own) } : placeInLine;
    const row = { ...Object.fromEntries(given), tenant: own.tenant, ...place };
    const length = isCall ? callsWaiting(own) : sql`(${queued})`;
    const hasRoom = lt(length, sql.placeholder("maxQueueSize"));
    const hasQuota = sql`not exists (select 1 from ${tenants} where ${own(tenants)} and ${isFull})`;
    const isKeyFree = hasKey ? sql`not exists (${selectHolder(own)})` : undefined;
    const isTaken = isCall ? takesCall(own) : undefined;
    const condition = and(hasRoom, hasQuota, isKeyFree, isTaken);
    return insertWhere(executions, row as never, condition, isCall ? undefined : lineOf(own));
  });
  inserts.set(name, made);
  return made;
}

const placeInLine = {
  turn: sql`line.turn`,
  rank: sql`line.turn - ${sql.placeholder("priority")}`,
};
/** The limit has SQLite look for the turn once, not once for each mention. */
const lineOf = (own: Owner): SQL =>
  sql`from (select ${nextTurn(own, sql`${sql.placeholder("jobType")}`)} as turn limit 1) as line`;

/** `changes()` is of the statement before it, which inserts the execution or does not. */
const insertPayload = perTenant((own) =>
  insertWhere(
    payloads,
    {
      executionId: sql.placeholder("id"),
      code: sql.placeholder("code"),
      input: sql.placeholder("input"),
      stdin: sql.placeholder("stdin"),
      args: sql.placeholder("args"),
      program: sql.placeholder("program"),
      tools: sql.placeholder("tools"),
      call: sql.placeholder("call"),
    } as never,
    sql`changes() > 0 ${own.anybody(payloads, "of the execution that was just made")}`,
  ),
);
