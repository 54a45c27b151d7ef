import { sql } from "drizzle-orm";
import {
  batches,
  executions,
  isInLine,
  payloads,
  queueFronts,
  queueLength,
  tenants,
  tombstones,
} from "../schema.ts";
import { type AnyDb, batch, type Owner, perTenant, type TenantStatement } from "../tenant.ts";
import { columnsOfTenant, dayOf, decodeTenant, isCpuUsed, type TenantRow } from "../tenants.ts";
import { columns, itemsTable, rowsOf, type BatchItem } from "./rows.ts";
import { filesJson, insertFilesOf } from "../jobs/input-files.ts";
import { holderOf } from "../jobs/submit.ts";

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
export interface ItemOutcome {
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
 * batch is stored only if every item is accepted or was before. One statement for each table, so that a
 * thousand items keep the thread no longer than a few requests.
 *
 * The same batch can be sent again when it is not known whether it was committed.
 *
 * @returns The batch; for a repeated idempotency key, the batch that has it.
 */
export async function submitBatch(
  db: AnyDb,
  { items, ...submitted }: NewBatch,
  maxQueueSize: number,
): Promise<StoredBatch> {
  const rows = rowsOf(items);
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
  const [, , , , outcome, , holder, owner] = await batch(db, [
    insertBatch(values),
    insertExecutions(values),
    insertPayloads(values),
    insertInputFiles(values),
    recordOutcome(values),
    dropRefused(values),
    findByKey(values),
    ownerOf(values),
  ]);
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

const decoder = new TextDecoder();
/** The bytes of a text as it is: a byte order mark stays. */
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
  const rows = JSON.parse(decoder.decode(bytes as ArrayBuffer)) as OutcomeRow[];
  return rows.map(([n, accepted, id, removed, same]) => ({
    n,
    isAccepted: accepted === 1,
    id,
    isRemoved: removed === 1,
    isSame: same === 1,
  }));
}

const given = sql.placeholder;
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

/** Turns are those of line.ts, for all items at once: t(n) = 1 + max(front(n), t(n - 1)). */
const executionsInsert = (varying: Varying) =>
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
      coalesce((select ${tenants.maxStoredBytes} - ${tenants.storedBytes}
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

const outcomeRecord = (varying: Varying) =>
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

type Varying = Parameters<typeof itemsTable>[0];
const prepared = new Map<
  string,
  { insertExecutions: TenantStatement; recordOutcome: TenantStatement }
>();

function statementsFor(varying: Varying) {
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
