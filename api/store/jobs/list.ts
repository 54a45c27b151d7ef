import { and, desc, eq, gte, lt, lte, or, sql, type SQL, type SQLWrapper } from "drizzle-orm";
import type { ExecutionStatus } from "../../../shared/wire/execution.ts";
import { firstIdAt } from "../../domain/first-id.ts";
import { type ExecutionRow, executionColumns } from "./row.ts";
import { query } from "../statement.ts";
import { type AnyDb, listRows, type Owner } from "../tenant.ts";
import {
  executionMetadata,
  executions,
  isEnded,
  isInLine,
  isQueued,
  isRunning,
  isWaitingCall,
  tenants,
} from "../schema.ts";

export interface ListFilter {
  /** None: every status. */
  statuses?: ExecutionStatus[] | undefined;
  /** A text in the type or the message of the error. */
  error?: string | undefined;
  jobType?: string | undefined;
  parentId?: string | undefined;
  batchId?: string | undefined;
  sessionId?: string | undefined;
  /** files: only calls that read or write files of a session; all: also these. Otherwise they are left out. */
  kind?: "files" | "all" | undefined;
  /** Every pair must match. */
  metadata?: [key: string, value: string][] | undefined;
  /** Epoch ms, inclusive. */
  createdAfter?: number | undefined;
  /** Epoch ms, exclusive. */
  createdBefore?: number | undefined;
  /** Id of an execution: only those that were submitted before it. */
  before?: string | undefined;
}

/**
 * A page of executions, newest first. Its cost does not depend on how long the history is, except with
 * `error`: then it reads executions that failed until the page is full.
 */
export async function listExecutions(
  db: AnyDb,
  filter: ListFilter,
  limit: number,
  offset: number,
): Promise<ExecutionRow[]> {
  const { error, statuses = error === undefined ? [] : withError } = filter;
  const [first, ...others] = filter.metadata ?? [];
  // With metadata, the rows of its index give the order.
  const seq = first ? executionMetadata.seq : executions.seq;
  const asked = { ...filter, statuses };
  // The indexes of the jobs that wait and that run do not have the order of submission.
  const isMerged = statuses.length > 1 || ["queued", "running"].includes(statuses[0] ?? "");
  return listRows(db, (own) => {
    const rows = query.select(executionColumns).from(executions).$dynamic();
    if (first) {
      const [key, value] = first;
      const isPair = and(eq(executionMetadata.key, key), eq(executionMetadata.value, value));
      const isItsRow = and(eq(executionMetadata.seq, executions.seq), isPair);
      const its = own.isAll ? isOfSomebody(own, executionMetadata.tenant) : undefined;
      void rows.innerJoin(executionMetadata, and(isItsRow, its, own(executionMetadata)));
    }
    return rows
      .where(
        (isMerged || own.isAll) && !isNarrow(filter)
          ? and(newestOf(own, asked, limit + offset), own(executions))
          : and(
              ...conditions(own, asked, seq),
              ...others.map((pair) => hasPair(own, pair)),
              own(executions),
            ),
      )
      .orderBy(desc(seq))
      .limit(limit)
      .offset(offset);
  });
}

/** Statuses in which an execution has an error. */
const withError: ExecutionStatus[] = ["failed", "timeout", "oom", "cancelled"];

/** Whether few executions are asked for, which an index has in the order of submission. */
const isNarrow = ({ parentId, batchId, sessionId, metadata = [] }: ListFilter): boolean =>
  parentId !== undefined || batchId !== undefined || sessionId !== undefined || metadata.length > 0;

/** Indexes begin with the tenant. So a list of all tenants asks for the rows of each. */
const isOfSomebody = (own: Owner, tenant: SQLWrapper): SQL =>
  sql`${tenant} in (select ${tenants.name} from ${tenants} ${own.anybody(tenants, "names")})`;

/** The newest of each status: indexes have the order of submission within a tenant and a status alone. */
function newestOf(own: Owner, filter: ListFilter, most: number): SQL {
  const { seq } = executions;
  const statuses = filter.statuses?.length ? [...new Set(filter.statuses)] : [undefined];
  const newest = statuses.flatMap((status) => {
    const its = own.isAll ? sql`${executions.tenant} = each.name` : undefined;
    const where = (isIt: SQL | undefined) =>
      and(isIt, ...conditions(own, { ...filter, statuses: [] }, seq), its, own(executions));
    const some = (isIt: SQL | undefined, index = "") =>
      sql`select seq from (select ${seq} from ${executions} ${sql.raw(index)} where ${where(isIt)} order by ${seq} desc limit ${most})`;
    if (status === "queued") {
      const calls = some(isWaitingCall, "indexed by executions_waiting_call");
      return [some(isInLine, "indexed by executions_position"), calls];
    }
    // All of them: there are no more than the agents have slots and sessions.
    return status === "running"
      ? sql`select ${seq} from ${executions} indexed by executions_holder where ${where(isRunning)}`
      : some(status && hasStatus(status));
  });
  const merged = sql.join(newest, sql` union all `);
  if (!own.isAll) return sql`${seq} in (${merged})`;
  const anybody = own.anybody(tenants, "a list of all", "each");
  const again = own.anybody(executions, "a list of all", "top");
  return sql`${seq} in (select top.seq from ${tenants} as each ${anybody}
    cross join ${executions} as top ${again} where top.seq in (${merged}))`;
}

type Seq = typeof executions.seq | typeof executionMetadata.seq;

function conditions(own: Owner, filter: ListFilter, seq: Seq): (SQL | undefined)[] {
  const {
    statuses = [],
    error,
    jobType,
    parentId,
    batchId,
    sessionId,
    kind,
    createdAfter,
    createdBefore,
    before,
  } = filter;
  const { createdAt } = executions;
  return [
    or(...statuses.map(isNarrow(filter) ? hasStatusUnindexed : hasStatus)),
    error === undefined ? undefined : hasError(error),
    jobType === undefined ? undefined : eq(executions.jobType, jobType),
    parentId === undefined ? undefined : eq(executions.parentExecutionId, parentId),
    batchId === undefined ? undefined : eq(executions.batchId, batchId),
    sessionId === undefined ? undefined : eq(executions.sessionId, sessionId),
    kind === "all" ? undefined : sql`${executions.kind} is ${kind ?? null}`,
    before === undefined ? undefined : lt(seq, seqOf(own, before)),
    ...(createdAfter === undefined
      ? []
      : [gte(createdAt, createdAfter), gte(seq, firstFrom(own, createdAfter - clockSkewMs))]),
    ...(createdBefore === undefined
      ? []
      : [lt(createdAt, createdBefore), lte(seq, lastUntil(own, createdBefore + clockSkewMs))]),
  ];
}

function hasStatus(status: ExecutionStatus): SQL | undefined {
  if (status === "queued") return isQueued;
  if (status === "running") return isRunning;
  return and(isEnded, eq(executions.status, status));
}

/** Keeps the index of statuses from being chosen instead of a narrower one. */
const hasStatusUnindexed = (status: ExecutionStatus): SQL => sql`+${executions.status} = ${status}`;

const hasError = (text: string): SQL =>
  sql`instr(lower((${executions.error} ->> '$.type') || ': ' || (${executions.error} ->> '$.message')), lower(${text})) > 0`;

const hasPair = (own: Owner, [key, value]: [string, string]): SQL =>
  sql`exists (select 1 from ${executionMetadata} as pair
    where pair.key = ${key} and pair.value = ${value} and pair.seq = ${executions.seq}
      and ${own(executionMetadata, "pair")})`;

/**
 * Ids begin with the time at which an API process made them. So the index of ids finds about where a time
 * is in the order of submission: exact up to the difference between the clocks of several processes.
 */
const clockSkewMs = 60_000;

const anybody = (own: Owner): SQL =>
  own.anybody(executions, "a time or an id is a place among all, which is no record", "near");

const firstFrom = (own: Owner, time: number): SQL =>
  sql`coalesce((select near.seq from ${executions} as near ${anybody(own)}
    where near.id >= ${firstIdAt(time)} order by near.id limit 1), ${Number.MAX_SAFE_INTEGER})`;

const lastUntil = (own: Owner, time: number): SQL =>
  sql`coalesce((select near.seq from ${executions} as near ${anybody(own)}
    where near.id < ${firstIdAt(time)} order by near.id desc limit 1), -1)`;

/** The number of an execution, or of the next one if it was removed. */
function seqOf(own: Owner, id: string): SQL {
  return sql`coalesce(
    (select near.seq from ${executions} as near ${anybody(own)} where near.id = ${id}),
    (select near.seq from ${executions} as near ${anybody(own)} where near.id > ${id} order by near.id limit 1),
    ${Number.MAX_SAFE_INTEGER})`;
}
