import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import {
  and,
  count,
  desc,
  eq,
  gte,
  inArray,
  isNull,
  lt,
  lte,
  or,
  sql,
  type SQL,
  type SQLWrapper,
} from "drizzle-orm";
import { decodeUtf8 } from "../../shared/bytes.ts";
import { type JsonObject, JsonText } from "../../shared/json.ts";
import { ExecutionErrorType } from "../../shared/wire/errors.ts";
import {
  ExecutionDeleted,
  ExecutionList,
  ExecutionRecord,
  type ExecutionStatus,
  executionStatuses,
  isTerminal,
  JobId,
} from "../../shared/wire/executions.ts";
import {
  type DeadLetter,
  DeadLetterDeleted,
  DeadLetterPage,
  DeadLetterStats,
} from "../../shared/wire/submissions.ts";
import type { ClientDeps } from "../deps.ts";
import { AppError, notFound } from "../errors.ts";
import { jsonPage, jsonRecord } from "../http/answer.ts";
import { actorOf, type AppEnv } from "../http/context.ts";
import {
  deadLetterPage,
  deadLetterStats as statsExample,
  executionPage,
  jobId,
  recordExamples,
  sessionId,
} from "../http/examples.ts";
import {
  beforeQuery,
  jobIdParam,
  json,
  pageQuery,
  plainNumber,
  problem,
  viewQuery,
} from "../http/responses.ts";
import type { Database } from "../store/database.ts";
import { firstIdAt, removeExecution } from "../store/retention.ts";
import {
  deadLetters,
  executionMetadata,
  executions,
  isNotRunning,
  isOfFiles,
  isRunning,
  payloads,
  tenants,
} from "../store/schema.ts";
import { given, listed, query } from "../store/statement.ts";
import {
  type AnyDb,
  batch,
  listRows,
  ofTenant,
  type Owner,
  perTenant,
  tenantRow,
  tenantRows,
} from "../store/tenant.ts";
import { type Actor, audited } from "../tenants/sql.ts";
import { readAtOnceBytes, readRecord, readRecords, requireExecution, timestamp } from "./read.ts";
import { executionColumns, type ExecutionRow, showsLog } from "./sql.ts";

export function executionRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/executions",
    operationId: "listExecutions",
    summary: "Executions, newest first",
    request: { query: listQuery },
    responses: {
      200: json(ExecutionList, "A page of records.", { example: executionPage }),
    },
  });
  app.openapi(list, async (c) => {
    const query = c.req.valid("query");
    const { limit, offset } = query;
    const { db } = c.get("client");
    const rows = await listExecutions(db, filterOf(query), limit + 1, offset);
    const render = (some: ExecutionRow[]) => readRecords(db, some, query);
    return jsonPage(c, rows, { limit, offset }, bytesRead, render) as never;
  });

  const single = createRoute({
    method: "get",
    path: "/executions/{id}",
    operationId: "getExecution",
    summary: "One execution record, finished or not",
    request: { params: jobIdParam, query: z.object({ view: viewQuery }) },
    responses: {
      200: json(ExecutionRecord, "The record as it is now.", { examples: recordExamples }),
      404: problem("not_found", { detail: `Execution ${jobId} does not exist.` }),
    },
  });
  app.openapi(single, async (c) => {
    const { id } = c.req.valid("param");
    const client = c.get("client");
    const execution = await requireExecution(client, id, "Execution");
    const record = await readRecord(client.db, execution, c.req.valid("query").view);
    return (await jsonRecord(c, record)) as never;
  });

  const removal = createRoute({
    method: "delete",
    path: "/executions/{id}",
    operationId: "deleteExecution",
    summary: "Remove a finished execution",
    description:
      "Removes its record, streams, artifacts and dead letter. Its idempotency key stays taken: a repeat of its submission is 409 and does not run the code again.",
    request: { params: jobIdParam },
    responses: {
      200: json(ExecutionDeleted, "Removed.", { example: { execution_id: jobId, deleted: true } }),
      404: problem("not_found", { detail: `Execution ${jobId} does not exist.` }),
      409: problem("conflict", {
        detail: `Job ${jobId} has not finished: cancel it first.`,
        job_id: jobId,
      }),
    },
  });
  app.openapi(removal, async (c) => {
    const { id } = c.req.valid("param");
    const deps = c.get("client");
    await remove(deps, id, actorOf(deps, c));
    return c.json({ execution_id: id, deleted: true as const }, 200);
  });
}

const recordFields = Object.keys(ExecutionRecord.shape) as (keyof ExecutionRecord)[];

const time = (what: string) =>
  z.iso
    .datetime({ offset: true, error: "must be a time with its zone, such as 2026-11-21T00:00:00Z" })
    .optional()
    .openapi({
      description: `Only executions that were created ${what} this time. A date alone is refused: its day begins at another time in each zone.`,
    });

const pair = z.string().regex(/^[\w.-]{1,64}:/, "must be key:value");

/** The values of a parameter that may come several times. */
const several = <T extends z.ZodType>(values: z.ZodArray<T>) =>
  z.preprocess((given) => (given === undefined ? [] : [given].flat()), values);

const isStatus = (text: string): text is ExecutionStatus =>
  (executionStatuses as readonly string[]).includes(text);

/** The query of lists of executions. */
const listQuery = z.object({
  status: several(z.array(z.string()).max(executionStatuses.length))
    // A fault names the parameter, not one of its values.
    .refine((all) => all.every(isStatus), `must be one of ${executionStatuses.join(", ")}`)
    .openapi({
      type: "array",
      items: { $ref: "#/components/schemas/ExecutionStatus" },
      default: [],
      description: "Only executions in this state. Repeat it to ask for several.",
      example: ["failed", "timeout"],
    }),
  job_type: z.string().optional(),
  parent_execution_id: z
    .string()
    .optional()
    .openapi({ description: "Only reruns and forks of this execution.", example: jobId }),
  batch_id: z.string().optional().openapi({ description: "Only members of this batch." }),
  session_id: z
    .string()
    .optional()
    .openapi({ description: "Only calls of this session.", example: sessionId }),
  kind: z.enum(["files", "all"]).optional().openapi({
    description:
      "Calls that read or write files of a session are left out. `files`: only these; `all`: these too.",
  }),
  metadata: several(z.array(pair).max(50)).openapi({
    type: "array",
    items: { type: "string" },
    default: [],
    description:
      "`key:value`: only executions whose metadata has it. Repeat it to ask for several.",
    example: ["order:4711"],
  }),
  error: z.string().min(1).max(200).optional().openapi({
    description:
      "Only executions whose error has this text in its type or message, in capital or small ASCII letters. In a long history, other filters make it faster.",
    example: "connection refused",
  }),
  created_after: time("at or after"),
  created_before: time("before"),
  before: JobId.optional().openapi({
    description:
      "Id of the last execution of the previous page. Unlike `offset`, it neither repeats nor leaves out executions while new ones arrive.",
    example: jobId,
  }),
  ...pageQuery,
  view: viewQuery,
  fields: z
    .string()
    .transform((text) => text.split(","))
    .pipe(z.array(z.enum(recordFields)))
    .optional()
    .openapi({
      type: "string",
      description:
        "Names of fields, separated by commas: records have these and their id alone, extended ones as well. A list without streams and output is much smaller.",
      example: "status,ended_at,metadata",
    }),
});
type ListQuery = z.output<typeof listQuery>;

/** What a record reads beside its row, about. */
function bytesRead(row: ExecutionRow): number {
  const { submittedBytes, outputBytes, results } = row;
  // All of the log is read, and the row does not tell its size.
  if (showsLog(row)) return Infinity;
  return submittedBytes + outputBytes + (results === null ? 0 : readAtOnceBytes);
}

function filterOf(query: ListQuery) {
  const { created_after, created_before } = query;
  return {
    statuses: query.status.filter(isStatus),
    error: query.error,
    jobType: query.job_type,
    parentId: query.parent_execution_id,
    batchId: query.batch_id,
    sessionId: query.session_id,
    kind: query.kind,
    metadata: query.metadata.map(splitPair),
    createdAfter: created_after === undefined ? undefined : Date.parse(created_after),
    createdBefore: created_before === undefined ? undefined : Date.parse(created_before),
    before: query.before,
  };
}

function splitPair(text: string): [string, string] {
  const colon = text.indexOf(":");
  return [text.slice(0, colon), text.slice(colon + 1)];
}

/**
 * `statuses`: none for every status. `metadata`: every pair must match. Without `kind`, calls that read or write files of a
 * session are left out. Times are epoch ms; `createdBefore` is exclusive.
 */
type ListFilter = Partial<ReturnType<typeof filterOf>>;

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
  const statuses = filter.statuses?.length ? filter.statuses : filter.error ? withError : [];
  const [first, ...others] = filter.metadata ?? [];
  // With metadata, the rows of its index give the order.
  const seq = first ? executionMetadata.seq : executions.seq;
  const asked = { ...filter, statuses };
  // The index of what runs does not have the order of submission.
  const isMerged = statuses.length > 1 || statuses[0] === "running";
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
        (isMerged || own.isAll) && !isNarrow(own, filter)
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
const isNarrow = (own: Owner, { parentId, batchId, sessionId, kind, metadata = [] }: ListFilter) =>
  [parentId, batchId, sessionId].some((id) => id !== undefined) ||
  metadata.length > 0 ||
  (kind === "files" && !own.isAll);

/** Indexes begin with the tenant. So a list of all tenants asks for the rows of each. */
const isOfSomebody = (own: Owner, tenant: SQLWrapper): SQL =>
  sql`${tenant} in (select ${tenants.name} from ${tenants} ${own.anybody(tenants, "names")})`;

/** The newest of each status: indexes have the order of submission within a tenant and a status alone. */
function newestOf(own: Owner, filter: ListFilter, most: number): SQL {
  const { seq } = executions;
  const statuses = filter.statuses?.length ? [...new Set(filter.statuses)] : [undefined];
  const newest = statuses.map((status) => {
    const its = own.isAll ? sql`${executions.tenant} = each.name` : undefined;
    const where = (isIt: SQL | undefined) =>
      and(isIt, ...conditions(own, { ...filter, statuses: [] }, seq), its, own(executions));
    // All of them: there are no more than the agents have slots and sessions.
    return status === "running"
      ? sql`select ${seq} from ${executions} indexed by executions_holder where ${where(isRunning)}`
      : sql`select seq from (select ${seq} from ${executions} where ${where(status && hasStatus(status))} order by ${seq} desc limit ${most})`;
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
  const narrow = isNarrow(own, filter);
  // The plus keeps other indexes from being chosen instead of the narrow one.
  const is = (column: SQLWrapper, value: string) =>
    sql`${narrow ? sql`+` : sql``}${column} = ${value}`;
  return [
    or(...statuses.map((status) => (narrow ? is(executions.status, status) : hasStatus(status)))),
    error === undefined ? undefined : hasError(error),
    jobType === undefined ? undefined : is(executions.jobType, jobType),
    parentId === undefined ? undefined : eq(executions.parentExecutionId, parentId),
    batchId === undefined ? undefined : eq(executions.batchId, batchId),
    sessionId === undefined ? undefined : eq(executions.sessionId, sessionId),
    kind === "all" ? undefined : kind ? isOfFiles : isNull(executions.kind),
    before === undefined ? undefined : lt(seq, seqOf(own, before)),
    ...(createdAfter === undefined
      ? []
      : [gte(createdAt, createdAfter), gte(seq, firstSince(own, createdAfter))]),
    ...(createdBefore === undefined
      ? []
      : [lt(createdAt, createdBefore), lte(seq, lastUntil(own, createdBefore + clockSkewMs))]),
  ];
}

const hasStatus = (status: ExecutionStatus): SQL | undefined =>
  status === "running" ? isRunning : and(isNotRunning, eq(executions.status, status));

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

const { MAX_SAFE_INTEGER: noneHas } = Number;
const firstFrom = (own: Owner, time: number): SQL =>
  sql`coalesce((select near.seq from ${executions} as near ${anybody(own)}
    where near.id >= ${firstIdAt(time)} order by near.id limit 1), ${noneHas})`;

/** More ids than a page has rows. */
const fewIds = 1000;

/**
 * The first number that may have been created at or after a time. An id is made after its `created_at` by the same
 * clock: so if few ids are from that time on, theirs are the numbers, and not all of the last minute are read.
 */
const firstSince = (own: Owner, time: number): SQL =>
  sql`coalesce((select iif(count(*) < ${fewIds}, coalesce(min(seq), ${noneHas}), null) from (
      select near.seq from ${executions} as near ${anybody(own)}
      where near.id >= ${firstIdAt(time)} order by near.id limit ${fewIds})),
    ${firstFrom(own, time - clockSkewMs)})`;

const lastUntil = (own: Owner, time: number): SQL =>
  sql`coalesce((select near.seq from ${executions} as near ${anybody(own)}
    where near.id < ${firstIdAt(time)} order by near.id desc limit 1), -1)`;

/** The number of an execution, or of the next one if it was removed. */
function seqOf(own: Owner, id: string): SQL {
  return sql`coalesce(
    (select near.seq from ${executions} as near ${anybody(own)} where near.id = ${id}),
    (select near.seq from ${executions} as near ${anybody(own)} where near.id > ${id} order by near.id limit 1),
    ${noneHas})`;
}

const hourMs = 3_600_000;

/**
 * Removes a finished execution with its payload, artifacts and dead letter. The bytes of its artifacts
 * are removed an hour later, for the sake of backups: see api/sweep.ts.
 *
 * @throws AppError 404 when it is unknown; 409 when it has not finished.
 */
export async function remove({ db }: ClientDeps, id: string, by: Actor): Promise<void> {
  const execution = await requireExecution({ db }, id, "Execution");
  if (!isTerminal(execution.status)) {
    throw new AppError("conflict", `Job ${id} has not finished: cancel it first.`, { job_id: id });
  }
  // Another request may have removed it meanwhile.
  if (!(await removeExecution(db, id, by.at + hourMs, by))) throw notFound(`Execution ${id}`);
}

const before = beforeQuery("Id of the last entry of the previous page: only older entries.");

/** The dead letter queue: asynchronous jobs that failed for good. */
export function deadLetterRoutes(app: OpenAPIHono<AppEnv>): void {
  const list = createRoute({
    method: "get",
    path: "/dlq",
    operationId: "listDeadLetters",
    summary: "Failed jobs, newest first",
    request: {
      query: z.object({ error_type: ExecutionErrorType.optional(), before, ...pageQuery }),
    },
    responses: {
      200: json(DeadLetterPage, "A page of entries.", { example: deadLetterPage }),
    },
  });
  app.openapi(list, async (c) => {
    const { error_type, before, limit, offset } = c.req.valid("query");
    const { db } = c.get("client");
    const rows = await listDeadLetters(db, { type: error_type, before }, limit + 1, offset);
    const render = (some: DeadLetterRow[]) => toDeadLetters(db, some);
    return jsonPage(c, rows, { limit, offset }, (row) => row.submittedBytes, render) as never;
  });

  const stats = createRoute({
    method: "get",
    path: "/dlq/stats",
    operationId: "getDeadLetterStats",
    summary: "Counts of failed jobs by error type",
    responses: { 200: json(DeadLetterStats, "Counts of the entries.", { example: statsExample }) },
  });
  app.openapi(stats, async (c) => {
    const { byType, oldest } = await deadLetterStats(c.get("client").db);
    return c.json(
      {
        total: [...byType.values()].reduce((sum, n) => sum + n, 0),
        by_error_type: Object.fromEntries(byType),
        oldest_created_at: oldest === null ? null : timestamp(oldest),
      },
      200,
    );
  });

  const remove = createRoute({
    method: "delete",
    path: "/dlq/{id}",
    operationId: "deleteDeadLetter",
    summary: "Remove an entry",
    description: "The execution record stays.",
    request: {
      params: z.object({ id: z.string().openapi({ type: "integer", minimum: 1, example: 1 }) }),
    },
    responses: {
      200: json(DeadLetterDeleted, "Removed.", { example: { id: 1, deleted: true } }),
      404: problem("not_found", { detail: "DLQ entry 1 does not exist." }),
    },
  });
  app.openapi(remove, async (c) => {
    const { id: text } = c.req.valid("param");
    const id = plainNumber(text) ?? 0;
    const deps = c.get("client");
    const isGone = await deleteDeadLetter(deps.db, id, actorOf(deps, c));
    if (!isGone) throw notFound(`DLQ entry ${text}`);
    return c.json({ id, deleted: true as const }, 200);
  });
}

async function toDeadLetters(db: AnyDb, rows: DeadLetterRow[]): Promise<DeadLetter[]> {
  const payloads = await deadLetterPayloads(db, rows);
  return rows.map((row) => {
    const payload = payloads.get(row.executionId);
    const input = new JsonText(payload ? decodeUtf8(payload.input) : "{}") as unknown;
    return {
      id: row.id,
      job_id: row.executionId,
      job_data: {
        code: payload ? decodeUtf8(payload.code) : "",
        input_data: input as JsonObject,
        job_type: row.jobType,
      },
      error_type: row.error?.type ?? "unknown",
      error_message: row.error?.message ?? "",
      retry_count: row.attempt > 0 ? row.attempt - 1 : 0,
      created_at: timestamp(row.createdAt),
      client_ip: row.clientIp,
      correlation_id: row.correlationId,
      ...ofTenant(db, row),
    };
  });
}

/** A dead letter with the columns of its execution that it shows. */
export async function listDeadLetters(
  db: AnyDb,
  { type, before }: { type?: string | undefined; before?: number | undefined },
  limit: number,
  offset: number,
) {
  return listRows(db, (own) =>
    query
      .select({
        id: deadLetters.id,
        tenant: deadLetters.tenant,
        createdAt: deadLetters.createdAt,
        executionId: executions.id,
        jobType: executions.jobType,
        submittedBytes: executions.submittedBytes,
        error: executions.error,
        attempt: executions.attempt,
        clientIp: executions.clientIp,
        correlationId: executions.correlationId,
      })
      .from(deadLetters)
      .innerJoin(executions, eq(executions.id, deadLetters.executionId))
      .where(
        and(
          type === undefined ? undefined : eq(deadLetters.errorType, type),
          before === undefined ? undefined : lt(deadLetters.id, before),
          own(deadLetters),
          own(executions),
        ),
      )
      .orderBy(desc(deadLetters.id))
      .limit(limit)
      .offset(offset),
  );
}
type DeadLetterRow = Awaited<ReturnType<typeof listDeadLetters>>[number];

/** Code and input of the executions of some dead letters, by execution id. */
async function deadLetterPayloads(db: AnyDb, rows: DeadLetterRow[]) {
  const ids = rows.map((row) => row.executionId);
  const found = await payloadsOf(db, { ids: JSON.stringify(ids) });
  return new Map(found.map((payload) => [payload.id, payload]));
}

const payloadsOf = tenantRows((own) =>
  query
    .select({ id: payloads.executionId, code: payloads.code, input: payloads.input })
    .from(payloads)
    .where(and(sql`${payloads.executionId} in ${listed("ids")}`, own(payloads))),
);

/** Number of dead letters of each error type, and time of the oldest (epoch ms). */
export async function deadLetterStats(db: AnyDb) {
  const [counts, first] = await Promise.all([countByType(db), findOldest(db)]);
  const byType = new Map<string, number>();
  for (const { type, n } of counts) byType.set(type, (byType.get(type) ?? 0) + n);
  return { byType, oldest: first?.createdAt ?? null };
}

const countByType = tenantRows((own) =>
  query
    .select({ type: deadLetters.errorType, n: count() })
    .from(deadLetters)
    .where(own(deadLetters))
    // In the order of the index: sorting those of all tenants by type takes eight times as long.
    .groupBy(deadLetters.tenant, deadLetters.errorType),
);
const findOldest = tenantRow((own) =>
  query
    .select({ createdAt: deadLetters.createdAt })
    .from(deadLetters)
    .where(own(deadLetters))
    // Ids are times.
    .orderBy(deadLetters.id)
    .limit(1),
);

/** Removes one dead letter; its execution stays. False if there was none. */
export async function deleteDeadLetter(db: AnyDb, id: number, by: Actor): Promise<boolean> {
  const [dropped] = await batch(db, [drop({ id }), audited(by, "dlq.delete", String(id))]);
  return dropped!.rowsAffected > 0;
}

const drop = perTenant(
  (own) =>
    sql`delete from ${deadLetters} where ${deadLetters.id} = ${given("id")} and ${own(deadLetters)}`,
);

/** Removes up to `rows` dead letters older than a time (epoch ms), oldest first. Returns their number. */
export async function pruneDeadLetters(
  db: Database,
  before: number,
  rows: number,
): Promise<number> {
  const old = db.orm
    .select({ id: deadLetters.id })
    .from(deadLetters)
    .where(lt(deadLetters.createdAt, before))
    .orderBy(deadLetters.createdAt)
    .limit(rows);
  const removed = await db.orm
    .delete(deadLetters)
    .where(inArray(deadLetters.id, old))
    .returning({ id: deadLetters.id });
  return removed.length;
}
