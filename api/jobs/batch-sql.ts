import { and, count, eq, inArray, lt, notExists, sql, type SQL } from "drizzle-orm";
import type { ExecutionStatus } from "../../shared/wire/executions.ts";
import type { Database } from "../store/database.ts";
import {
  batches,
  dayOf,
  executions,
  isInLine,
  isQueued,
  isRunning,
  payloads,
  queueFronts,
  queueLength,
  tenants,
  tombstones,
} from "../store/schema.ts";
import { decoder, given, listed, query, type Values } from "../store/statement.ts";
import {
  type AnyDb,
  batch,
  type Owner,
  perTenant,
  run,
  tenantRow,
  tenantRows,
  type TenantStatement,
} from "../store/tenant.ts";
import { columnsOfTenant, decodeTenant, isCpuUsed, type TenantRow } from "../tenants/sql.ts";
import { cancelledMessage } from "./rules.ts";
import { executionColumns, type ExecutionRow, filesJson, insertFilesOf } from "./sql.ts";
import { holderOf, type NewExecution, type Standing, submittedBytes } from "./submit.ts";

/** A submission of a batch, with its position in the request. */
export interface BatchItem {
  n: number;
  execution: NewExecution;
  /** It must not be accepted now, but may have been before. */
  isBlocked: boolean;
}

/** Fields of a submission whose columns take their values as they are, or as JSON. */
const taken = [
  "jobType",
  "timeoutS",
  "startupTimeoutS",
  "requirements",
  "availableAt",
  "codeHash",
  "inputHash",
  "codeBytes",
  "inputBytes",
  "metadata",
  "runAt",
  "startBy",
  "inputs",
  "results",
  "callbackUrl",
] as const;
const columns = ["submitted_bytes", ...taken.map((name) => executions[name].name)];
const fields = ["n", "blocked", "id", "key", "hash", "priority", "max_attempts", ...columns];

function toRow({ n, isBlocked, execution: e }: BatchItem): Values {
  return {
    n,
    blocked: Number(isBlocked),
    id: e.id,
    key: e.idempotencyKey ?? null,
    hash: e.submissionHash,
    priority: e.priority ?? 0,
    max_attempts: e.maxAttempts ?? null,
    submitted_bytes: submittedBytes(e),
    ...Object.fromEntries(taken.map((name) => [executions[name].name, plainOf(e[name])])),
  };
}

const plainOf = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? JSON.stringify(value) : (value ?? null);

/** Items that one statement inserts: some milliseconds. A file's client lets others run between statements. */
const insertedAtOnce = 250;

/**
 * The items of a batch as values of a statement. Reading a field from JSON takes half of a statement's
 * time. So only fields in which the items differ are in the JSON; the others are single values.
 */
function rowsOf(items: BatchItem[]) {
  const rows = items.map(toRow);
  const varying = fields.filter((name) => rows.some((row) => row[name] !== rows[0]?.[name]));
  const values: Values = {};
  for (const name of fields) values[`common.${name}`] = rows[0]?.[name] ?? null;
  const table = rows.map((row) => varying.map((name) => row[name]));
  values["items"] = JSON.stringify(table);
  return { varying, values, table };
}

/** Cuts a table of items into pieces. `earlier` names the items before a piece: it is inserted only if they all have room. */
function piecesOf(table: unknown[], items: BatchItem[], most: number): Values[] {
  return Array.from({ length: Math.ceil(items.length / most) }, (_, n) => {
    const before = items.slice(0, n * most).filter(({ isBlocked }) => !isBlocked);
    const earlier = before.map(({ execution: e }) => [e.id, e.idempotencyKey ?? null]);
    const some = table.slice(n * most, (n + 1) * most);
    return { items: JSON.stringify(some), earlier: JSON.stringify(earlier) };
  });
}

/** The table `items` with these fields, for a `with` clause. */
function itemsTable(varying: string[], wanted: readonly string[] = fields): SQL {
  const selected = wanted.map((name) => {
    const position = varying.indexOf(name);
    const value =
      position < 0 ? sql`${given(`common.${name}`)}` : sql`value ->> ${sql.raw(String(position))}`;
    return sql`${value} as ${sql.raw(name)}`;
  });
  return sql`items as materialized (
    select ${sql.join(selected, sql`, `)} from json_each(${given("items")}))`;
}

export interface NewBatch {
  id: string;
  tenant?: string;
  keyId: string | null;
  idempotencyKey: string | null;
  submissionHash: string;
  createdAt: number;
  isAtomic: boolean;
  items: BatchItem[];
}

/** What became of an item. */
interface ItemOutcome {
  n: number;
  isAccepted: boolean;
  /** The execution that it made, or that has its idempotency key; null if there was no room. */
  id: string | null;
  /** The execution that had its key was removed. */
  isRemoved: boolean;
  /** The execution that has its key was submitted with the same payload. */
  isSame: boolean;
}

export interface StoredBatch {
  id: string;
  submissionHash: string;
  createdAt: number;
  outcome: ItemOutcome[];
  /** The tenant as it was when the batch was stored. */
  tenant: TenantRow | undefined;
}

/**
 * Stores a batch and its executions in one transaction, items in order while the queue and its tenant have room. An atomic
 * batch is stored only if every item is accepted or was before. The statements are few and short, so that a thousand
 * items keep the thread no longer than a few requests.
 *
 * The same batch can be sent again when it is not known whether it was committed.
 *
 * @returns The batch; for a repeated idempotency key, the batch that has it.
 */
export async function submitBatch(
  db: AnyDb,
  { items, ...submitted }: NewBatch,
  maxQueueSize: number,
  atOnce = insertedAtOnce,
): Promise<StoredBatch> {
  const rows = rowsOf(items);
  const pieces = piecesOf(rows.table, items, submitted.isAtomic ? items.length : atOnce);
  const { insertExecutions, recordOutcome } = statementsFor(rows.varying);
  const values = {
    tenant: "default",
    ...submitted,
    ...commonOf(items),
    isAtomic: Number(submitted.isAtomic),
    maxQueueSize,
    day: dayOf(submitted.createdAt),
    ...rows.values,
    payloads: JSON.stringify(items.map(toPayload)),
    files: filesJson(items.map(({ execution }) => execution)),
  };
  const results = await batch(db, [
    insertBatch(values),
    ...pieces.map((piece) => insertExecutions({ ...values, ...piece })),
    insertPayloads(values),
    insertInputFiles(values),
    recordOutcome(values),
    dropRefused(values),
    findByKey(values),
    ownerOf(values),
  ]);
  const [outcome, , holder, owner] = results.slice(-4);
  const tenant = decodeTenant(owner?.rows[0]);
  const own = outcome?.rows[0]?.[0];
  if (own !== undefined) {
    const { id, submissionHash, createdAt } = submitted;
    return { id, submissionHash, createdAt, outcome: decodeOutcome(own), tenant };
  }
  const [id, submissionHash, createdAt, earlier] = Array.from(
    { length: 4 },
    (_, i) => holder?.rows[0]?.[i],
  );
  return {
    id: id as string,
    submissionHash: submissionHash as string,
    createdAt: Number(createdAt),
    outcome: decodeOutcome(earlier),
    tenant,
  };
}

/** What all executions of a batch have in common. */
function commonOf([first]: BatchItem[]) {
  const { correlationId = "", clientIp = "", traceparent = null } = first?.execution ?? {};
  return { correlationId, clientIp, traceparent };
}

const utf8 = new TextDecoder();
/** Decodes a text as it is: a byte order mark stays. */
const exact = new TextDecoder("utf-8", { ignoreBOM: true });
const toPayload = ({ execution: { id, code, input, stdin, args, program, tools } }: BatchItem) => ({
  id,
  code: exact.decode(code),
  input: exact.decode(input),
  stdin: stdin && exact.decode(stdin),
  args,
  program,
  tools,
});

type OutcomeRow = [n: number, accepted: number, id: string | null, removed: number, same: number];

function decodeOutcome(bytes: unknown): ItemOutcome[] {
  const rows = JSON.parse(utf8.decode(bytes as ArrayBuffer)) as OutcomeRow[];
  return rows.map(([n, accepted, id, removed, same]) => ({
    n,
    isAccepted: accepted === 1,
    id,
    isRemoved: removed === 1,
    isSame: same === 1,
  }));
}

const ownerOf = perTenant(
  (own) => sql`select ${columnsOfTenant} from ${tenants} where ${own(tenants)}`,
);
const columnList = sql.raw(columns.join(", "));

/** In place of a limit that does not hold. */
const most = sql.raw(String(Number.MAX_SAFE_INTEGER));
const holder = (own: Owner) => holderOf(own, sql`items.key`);
/** Its outcome is not known yet. So the same transaction sent twice does nothing the second time. */
const isNew = (own: Owner) =>
  sql`${batches.id} = ${given("id")} and ${batches.outcome} = '' and ${own(batches)}`;
const isOurs = (own: Owner) =>
  sql`${own(batches)} and (${batches.id} = ${given("id")} or ${batches.idempotencyKey} = ${given("idempotencyKey")})`;

const insertBatch = perTenant(
  (own) => sql`
  insert into ${batches} (id, tenant, key_id, idempotency_key, submission_hash, outcome, created_at)
  select ${given("id")}, ${own.tenant}, ${given("keyId")}, ${given("idempotencyKey")}, ${given("submissionHash")},
    '', ${given("createdAt")}
  where not exists (select 1 from ${batches} where ${isOurs(own)})`,
);

/** Whether an item of an earlier piece had no room: after it nothing is accepted, not even a smaller item. */
const wasRefused = (own: Owner) => sql`exists (
  select 1 from (select value ->> 0 as id, value ->> 1 as key from json_each(${given("earlier")})) as items
  where not exists (select 1 from ${executions} where ${executions.id} = items.id and ${own(executions)})
    and (items.key is null or not exists (${holder(own)})))`;

/** Turns are those of api/jobs/sql.ts, for all items at once: t(n) = 1 + max(front(n), t(n - 1)). */
const executionsInsert = (varying: string[]) =>
  perTenant(
    (own) => sql`
  with ${itemsTable(varying)},
  fresh as materialized (
    select *, row_number() over (order by n) as nth, sum(submitted_bytes) over (order by n) as bytes from items
    where not blocked and (key is null or not exists (${holder(own)}))),
  held as (
    select count(*) as n from items
    where key is not null and hash = (select submission_hash from (${holder(own)}) limit 1)),
  room as (
    select min(${given("maxQueueSize")} - ${queueLength.queued}, coalesce(
        (select iif(${isCpuUsed}, 0, ${tenants.maxQueued} - ${tenants.queued})
          from ${tenants} where ${own(tenants)}), ${most})) as n,
      coalesce((select ${tenants.maxStoredBytes}
          - iif(${tenants.maxStoredBytes} and ${wasRefused(own)}, ${most}, ${tenants.storedBytes})
        from ${tenants} ${own.anybody(tenants, "the same row")} where ${tenants.name} = ${own.tenant}), ${most}) as bytes
    from ${queueLength}),
  fronted as (
    select *, coalesce((select front.turn from ${queueFronts} as front
      where front.job_type = fresh.job_type), 0) as front from fresh),
  last as (
    select coalesce(max(${executions.turn}), 0) as turn from ${executions} where ${isInLine} and ${own(executions)}),
  lined as (
    select fronted.*, nth + max(last.turn, max(1 + front - nth) over (order by nth)) as turn
    from fronted, last)
  insert into ${executions} (id, tenant, mode, ${columnList}, idempotency_key, submission_hash,
    max_attempts, created_at, correlation_id, client_ip, key_id, batch_id, traceparent, turn, rank)
  select id, ${own.tenant}, 'async', ${columnList}, key, hash, coalesce(max_attempts, 2),
    ${given("createdAt")}, ${given("correlationId")}, ${given("clientIp")}, ${given("keyId")},
    ${given("id")}, ${given("traceparent")}, turn, turn - priority
  from lined
  where exists (select 1 from ${batches} where ${isNew(own)}) and nth <= (select n from room)
    and bytes <= (select bytes from room)
    and (not ${given("isAtomic")} or (
      (select count(*) from fresh) <= (select n from room)
      and (select coalesce(max(bytes), 0) from fresh) <= (select bytes from room)
      and (select count(*) from fresh) + (select n from held) = (select count(*) from items)))
  order by nth`,
  );

const insertPayloads = perTenant(
  (own) => sql`
  insert into ${payloads} (execution_id, code, input, stdin, args, program, tools)
  select value ->> 'id', cast(value ->> 'code' as blob), cast(value ->> 'input' as blob),
    cast(value ->> 'stdin' as blob), value ->> 'args', value ->> 'program', value ->> 'tools'
  from json_each(${given("payloads")})
  where exists (select 1 from ${executions}
    where ${executions.id} = value ->> 'id' and ${own(executions)})
    and exists (select 1 from ${batches} where ${isNew(own)})`,
);

const insertInputFiles = perTenant((own) =>
  insertFilesOf(own, sql`exists (select 1 from ${batches} where ${isNew(own)})`),
);

const outcomeRecord = (varying: string[]) =>
  perTenant(
    (own) => sql`
  with ${itemsTable(varying, ["n", "id", "key", "hash"])}
  update ${batches} set outcome = (
    select cast(json_group_array(json_array(n, made.id is not null,
      coalesce(made.id, held.id, ${tombstones.executionId}),
      ${tombstones.executionId} is not null, held.submission_hash is items.hash)) as blob)
    from items
      left join ${executions} as made on made.id = items.id and ${own(executions, "made")}
      left join ${executions} as held
        on held.idempotency_key = items.key and ${own(executions, "held")}
      left join ${tombstones} on ${tombstones.idempotencyKey} = items.key and ${own(tombstones)})
  where ${isNew(own)}
  returning outcome`,
  );

const prepared = new Map<
  string,
  { insertExecutions: TenantStatement; recordOutcome: TenantStatement }
>();

function statementsFor(varying: string[]) {
  const name = varying.join();
  const known = prepared.get(name) ?? {
    insertExecutions: executionsInsert(varying),
    recordOutcome: outcomeRecord(varying),
  };
  prepared.set(name, known);
  return known;
}

/** An atomic batch that was refused leaves nothing; its idempotency key is free. */
const dropRefused = perTenant(
  (own) => sql`
  delete from ${batches} where ${batches.id} = ${given("id")} and ${given("isAtomic")}
    and ${own(batches)}
    and not exists (select 1 from ${executions}
      where ${executions.batchId} = ${given("id")} and ${own(executions)})
    and exists (select 1 from json_each(cast(${batches.outcome} as text)) as item
      where item.value ->> 1 = 0 and item.value ->> 4 = 0)`,
);

const findByKey = perTenant(
  (own) =>
    sql`select id, submission_hash, created_at, outcome from ${batches} where ${isOurs(own)}`,
);

interface BatchState {
  id: string;
  tenant: string;
  createdAt: number;
  /** Members by status. */
  counts: Map<ExecutionStatus, number>;
}

export async function findBatch(db: AnyDb, id: string): Promise<BatchState | undefined> {
  const [found, members] = await Promise.all([batchById(db, { id }), countMembers(db, { id })]);
  if (!found) return undefined;
  return { id, ...found, counts: new Map(members.map(({ status, n }) => [status, n])) };
}

const batchById = tenantRow((own) =>
  query
    .select({ createdAt: batches.createdAt, tenant: batches.tenant })
    .from(batches)
    .where(and(eq(batches.id, given("id")), own(batches))),
);
const isMember = eq(executions.batchId, given("id"));
const countMembers = tenantRows((own) =>
  query
    .select({ status: executions.status, n: count() })
    .from(executions)
    .where(and(isMember, own(executions)))
    .groupBy(executions.status),
);

/** Members that one transaction ends: some milliseconds. */
const endedAtOnce = 100;

/**
 * Does for every member what `transition` does for one on `cancel`: ends those that are queued, and asks
 * the agents of those that run. Returns the members that have changed.
 *
 * Other requests run between its transactions. The last one leaves no member that is queued or has not been asked.
 */
export async function cancelMembers(db: AnyDb, id: string, now: number): Promise<ExecutionRow[]> {
  const changed: ExecutionRow[] = [];
  for (let ended = endedAtOnce; ended === endedAtOnce;) {
    const end = cancelQueued({ id, now, most: endedAtOnce });
    const results = await batch(db, [end, askRunning({ id })]);
    changed.push(...results.flatMap(({ rows }) => rows.map(decode)));
    ended = results[0]!.rows.length;
  }
  return changed;
}

const decode = decoder(executionColumns);
const someQueued = (own: Owner) =>
  query
    .select({ seq: executions.seq })
    .from(executions)
    .where(and(isMember, isQueued, own(executions)))
    .limit(given("most"));
const cancelQueued = perTenant((own) =>
  query
    .update(executions)
    .set({
      status: "cancelled",
      error: sql`json_object('type', 'cancelled', 'message', ${cancelledMessage}, 'phase', 'startup')`,
      endedAt: sql`${given("now")}`,
    })
    .where(and(inArray(executions.seq, someQueued(own)), own(executions)))
    .returning(executionColumns),
);
const askRunning = perTenant((own) =>
  query
    .update(executions)
    .set({ cancelRequested: true })
    .where(and(isMember, isRunning, eq(executions.cancelRequested, sql`0`), own(executions)))
    .returning(executionColumns),
);

/** Positions after this one are given as the number of the tenant's waiting executions, so that a long queue is not counted. */
const countedMost = 2000;

/** Where executions stand, by id. */
export async function readStandings(db: AnyDb, ids: string[]): Promise<Map<string, Standing>> {
  const { rows } = await run(db, standings({ ids: JSON.stringify(ids), most: countedMost }));
  return new Map(
    rows.map((row) => {
      const [id, status] = [row[0] as string, row[1] as ExecutionStatus];
      const [createdAt, queuePosition] = [Number(row[2]), Number(row[3])];
      return [id, { id, status, createdAt, queuePosition }];
    }),
  );
}

const standings = perTenant(
  (own) => sql`
  with line as materialized (
    select seq, row_number() over (order by rank, seq) as position
    from (select rank, seq from ${executions} where ${isInLine} and ${own(executions)}
      order by rank, seq limit ${given("most")}))
  select ${executions.id}, ${executions.status}, ${executions.createdAt},
    iif(${isInLine}, coalesce(line.position,
      (select max(queued, ${given("most")}) from ${tenants} where ${own(tenants)})), 0)
  from ${executions} left join line on line.seq = ${executions.seq}
  where ${executions.id} in ${listed("ids")} and ${own(executions)}`,
);

/** Removes up to `rows` batches made before a time that have no members any more. */
export async function forgetBatches(db: Database, before: number, rows: number): Promise<number> {
  const members = db.orm
    .select({ one: sql`1` })
    .from(executions)
    .where(eq(executions.batchId, batches.id));
  const old = db.orm
    .select({ id: batches.id })
    .from(batches)
    .where(and(lt(batches.createdAt, before), notExists(members)))
    .limit(rows);
  const { rowsAffected } = await db.orm.delete(batches).where(sql`${batches.id} in ${old}`);
  return rowsAffected;
}
