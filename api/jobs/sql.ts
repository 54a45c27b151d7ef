import {
  and,
  asc,
  count,
  eq,
  exists,
  getTableColumns,
  sql,
  type SQL,
  type SQLWrapper,
} from "drizzle-orm";
import { hex } from "../../shared/bytes.ts";
import type { QueueStats } from "../agents/placement.ts";
import { type Database, insertWhere } from "../store/database.ts";
import {
  agents,
  executions,
  inputFiles,
  isHeldSession,
  isInLine,
  isOpenSession,
  isRunning,
  isWaitingCall,
  payloads,
  queueFronts,
  queueLength,
  sessions,
  tenants,
} from "../store/schema.ts";
import { given, listed, query, rowQuery } from "../store/statement.ts";
import {
  type AnyDb,
  type Owner,
  perTenant,
  run,
  type TenantFilled,
  tenantRow,
  tenantRows,
} from "../store/tenant.ts";
import {
  type ArtifactRow,
  type ItemRow,
  listArtifacts,
  listItems,
  type LongColumn,
  longColumns,
  wholeOutput,
} from "./output.ts";

const { lostAttempts: _lostAttempts, ...others } = getTableColumns(executions);

/** What is read of a row. Only the readers of a record need the lost attempts. */
export const executionColumns = others;

export type ExecutionRow = Omit<typeof executions.$inferSelect, "lostAttempts">;

/** An execution that an agent has leased; one that has ended keeps its last lease. */
export type LeasedRow = ExecutionRow & { readonly leaseId: string };

export const isLeasedRow = <Row extends ExecutionRow>(row: Row): row is Row & LeasedRow =>
  row.leaseId !== null;

export const bytesOf = (...parts: (Uint8Array | null | undefined)[]): number =>
  parts.reduce((sum, part) => sum + (part?.length ?? 0), 0);

/** What the code of an execution is given. */
export type SubmittedPayload = Pick<
  typeof payloads.$inferSelect,
  "code" | "input" | "stdin" | "args" | "program" | "tools" | "call"
>;

/**
 * The order of the queue. Each execution gets a turn when it is submitted: one more than the last turn
 * of its tenant's waiting executions, but at least the turn after the front of its job type. Its rank
 * is its turn minus the priority of its job type. The lowest rank is leased first.
 *
 * Tenant a submits five jobs, tenant b then two. The turns of both begin at 1, so they alternate:
 *
 *     submitted   a a a a a  b b
 *     turn        1 2 3 4 5  1 2
 *     leased      a b a b a a a
 *
 * The front of a job type is the last turn that its agents have reached. If three jobs of a had been
 * leased before b submitted, the front would be 3. Then the jobs of b get turns 4 and 5, the same as the
 * fourth and fifth job of a, and not earlier ones.
 *
 * So at most `n + 1` jobs of each other tenant are leased before the n-th job of a tenant, apart from the shares of
 * tenants (below). A higher priority of the other tenant's jobs adds the difference of the priorities.
 *
 * @param jobType The placeholder of the job type.
 */
export function nextTurn(own: Owner, jobType: SQL): SQL<number> {
  const front = sql`(select ${queueFronts.turn} from ${queueFronts} where ${queueFronts.jobType} is ${jobType})`;
  const last = sql`(select max(${executions.turn}) from ${executions} where ${isInLine} and ${own(executions)})`;
  return sql`1 + max(coalesce(${front}, 0), coalesce(${last}, 0))`;
}

/** Whether a tenant runs as many jobs as it may. Its next jobs then wait, and those of other tenants pass them. */
export const isTenantFull = (tenant: SQL): SQL => sql`exists (select 1 from ${tenants}
  where ${tenants.name} = ${tenant} and ${tenants.maxRunning} is not null
    and ${tenants.running} >= ${tenants.maxRunning})`;

/**
 * How tenants share the slots of an agent. Two rules hold while more than one tenant is in use:
 *
 * - The last free slot is kept for tenants that have no job there, as long as one of the tenants in use has none. So one
 *   tenant can hold all slots but one, and the first job of another starts at once.
 * - A share is the number of slots divided by the number of tenants that run or wait there. Jobs above the share of
 *   their tenant are leased after the jobs of all others.
 *
 * Nothing that runs is ended: a tenant that holds more than its share comes down to it as its jobs end.
 */
const usedDays = 7;
/** Tenants that were made or used in the last days, read from an index. */
const inUse = (now: SQLWrapper) =>
  sql`${tenants.usedDay} >= ${now} / 86400000 - ${sql.raw(String(usedDays))}`;
/** Whether more than one tenant is in use. */
export const isShared = (now: SQLWrapper) =>
  sql<number>`(select count(*) from (select 1 from ${tenants} where ${inUse(now)} limit 2)) > 1`;

/**
 * Tables of a statement about an agent. `mine` has the tenants that hold something there, and how much. `space` has how
 * much the agent can hold (`most`), how much of that is `used`, and how many tenants in use hold nothing (`newcomers`; 2
 * stands for more).
 */
export const spaceOf = (held: SQL, most: SQL): SQL => sql`
  mine as materialized (select tenant, count(*) as n from (${held}) group by tenant),
  space as materialized (
    select coalesce((select ${most} from ${agents} where ${agents.id} = ${given("agentId")}), 1e9) as most,
      (select coalesce(sum(n), 0) from mine) as used,
      (select count(*) from (select 1 from ${tenants}
        where ${inUse(sql`${given("now")}`)} and ${tenants.name} not in (select tenant from mine) limit 2)) as newcomers)`;

export const jobsOfAgent = spaceOf(
  sql`select tenant from ${executions} where status = 'running' and agent_id = ${given("agentId")}
    and session_id is null`,
  sql`${agents.slots}`,
);

/**
 * Whether the next slot at the agent is kept from a tenant that holds one there. Needs `mine` and `space`. What the
 * agent says of free slots may be older than the table, which counts jobs whose files are being uploaded: they use none.
 */
export const isKeptFrom = (tenant: SQL): SQL => sql`(
  (select max(most - used, ${given("free")}) <= 1 and newcomers > 0 from space)
  and ${tenant} in (select tenant from mine))`;

const { rank, seq, turn, jobType, agentId, startedAt, sessionId } = executions;

/**
 * Moves the fronts of the offered job types after a claim, in the same transaction. A claim takes the
 * lowest rank that its agent may run. So the queue of each offered type has reached that rank, unless
 * an earlier job of the type still waits, for example for a GPU. The type of a leased job has reached
 * the job's turn, even if its priority had it leased earlier; otherwise a stream of such jobs would pass
 * the others forever. Returns rows if something was leased, each with the number of jobs that still wait.
 */
export const moveFronts = sql`
  with leased as materialized (
    select ${jobType} as type, ${turn} as turn, ${rank} as rank from ${executions}
    where ${isRunning} and ${agentId} = ${given("agentId")} and ${startedAt} = ${given("now")}
      and ${sessionId} is null),
  offered as (select value ->> 'jobType' as type from json_each(${given("offers")})),
  reached as (
    select type,
      (select max(iif(leased.type = offered.type, turn, min(turn, rank))) from leased) as turn,
      (select waiting.turn - 1 from ${executions} as waiting
        where waiting.status = 'queued' and waiting.session_id is null
          and waiting.job_type = offered.type and waiting.attempt = 0
          and waiting.available_at <= ${given("now")} and not ${isTenantFull(sql`waiting.tenant`)}
        order by waiting.rank, waiting.seq limit 1) as before_first
    from offered where exists (select 1 from leased))
  insert into ${queueFronts} (job_type, turn)
  select type, min(turn, coalesce(before_first, turn))
  from reached where true
  on conflict do update set turn = max(turn, excluded.turn)
  returning (select ${queueLength.queued} from ${queueLength}) as queued`;

/**
 * The number of its tenant's queued executions up to this one, itself included. For the last of them it is the
 * number of all, which nobody has to count. For others it is exact below `:most`; above, it is the number of
 * all too, so that a long queue is not counted.
 */
export const position = (own: Owner) => {
  const line = sql`${executions} ${own.anybody(executions, "its tenant's")}
    where ${isInLine} and ${executions.tenant} = its.tenant`;
  return sql<number>`
    select coalesce(
      case when exists (select 1 from ${line} and (${rank}, ${seq}) > (its.rank, its.seq)) then (
        select iif(n < ${given("most")}, n, null) from (
          select count(*) as n from (
            select 1 from ${line} and (${rank}, ${seq}) <= (its.rank, its.seq)
            limit ${given("most")})))
      end,
      (select queued from ${tenants} ${own.anybody(tenants, "its tenant's")} where name = its.tenant)
    ) as position
    from ${executions} as its where its.id = ${given("id")} and ${own(executions, "its")}`;
};

/** The place of a call in its session: calls run one at a time, in the order of their numbers. */

/** Number of calls that wait in the session of a new call. */
export const callsWaiting = (own: Owner): SQL =>
  sql`(select count(*) from ${executions} as waiting
  where ${own.anybody(executions, "takesCall checks whose session it is", "waiting")} waiting.session_id = ${given("sessionId")} and waiting.status = 'queued' and waiting.session_id is not null)`;

/** The number of a new call. */
export const nextCall = (own: Owner): SQL =>
  sql`(select ${sessions.calls} + 1 from ${sessions} where ${isItsSession(own)})`;

/** Whether the session of a new call is the tenant's, has not ended, and has the context, at the time of the call. */
export const takesCall = (own: Owner): SQL =>
  sql`exists (select 1 from ${sessions} where ${isItsSession(own)} and ${isOpenSession}
    and ${sessions.expiresAt} > ${given("createdAt")} and (${given("context")} = 'default'
    or exists (select 1 from json_each(${sessions.contexts}) where value = ${given("context")})))`;

const isItsSession = (own: Owner): SQL =>
  sql`${sessions.id} = ${given("sessionId")} and ${own(sessions)}`;

/** The number of calls of its session that wait up to this one, itself included. */
export const positionOfCall = (own: Owner): SQL<number> => sql`
  with its as materialized (
    select session_id, seq from ${executions} where ${executions.id} = ${given("id")} and ${own(executions)})
  select count(*) as position from ${executions} ${own.anybody(executions, "its session's, which `its` has checked")}
  where ${isWaitingCall} and ${executions.sessionId} = (select session_id from its)
    and ${executions.seq} <= (select seq from its)`;

type PayloadRow = typeof payloads.$inferSelect;

/** An execution with everything that its record shows. */
export interface FullExecution {
  execution: ExecutionRow;
  payload: Pick<
    PayloadRow,
    "stdin" | "args" | "program" | "tools" | "stdout" | "stderr" | "output" | "compile"
  >;
  /** Bytes of the columns that were left out because they have too many: api/jobs/output.ts reads them. */
  left: Partial<Record<LongColumn, number>>;
  artifacts: ArtifactRow[];
  inputFiles: InputFileInfo[];
  /** Only of an ended execution that asked for results; "left" if they have too many bytes. */
  items?: ItemRow[] | "left" | undefined;
}

/** What the answer needs to a request that has waited for the end of an execution. */
export type Ended = Omit<FullExecution, "artifacts" | "inputFiles">;

const findBy = (column: typeof executions.id | typeof executions.leaseId) => {
  const find = tenantRow((own) =>
    query
      .select(executionColumns)
      .from(executions)
      .where(and(eq(column, given("value")), own(executions))),
  );
  return (db: AnyDb, value: string): Promise<ExecutionRow | undefined> => find(db, { value });
};
export const findExecution = findBy(executions.id);
export const findByLease = findBy(executions.leaseId);

/** Position of an execution in the queue, of a call in that of its session: 1 for the next; 0 if it is not queued. */
export async function queuePosition(
  db: AnyDb,
  { id, status, sessionId }: ExecutionRow,
): Promise<number> {
  if (status !== "queued") return 0;
  const asked = sessionId === null ? positionOf({ id, most: 10_000 }) : callPosition({ id });
  const { rows } = await run(db, asked);
  return Number(rows[0]?.[0]);
}

const positionOf = perTenant(position);
const callPosition = perTenant(positionOfCall);

/** Adds payloads, items and artifacts to rows, in their order. A long column or items of more bytes than `most` are left. */
export async function withPayloads(
  db: AnyDb,
  rows: ExecutionRow[],
  most = Number.MAX_SAFE_INTEGER,
): Promise<FullExecution[]> {
  if (rows.length === 0) return [];
  const ids = rows.map(({ id }) => id);
  const showing = rows.filter(showsItems).map(({ id }) => id);
  const [payloadRows, artifactRows, fileRows, itemRows] = await Promise.all([
    outputs(db, { ids: JSON.stringify(ids), most }),
    listArtifacts(db, ids),
    filesOf(db, rows),
    listItems(db, showing, most),
  ]);
  return Promise.all(
    rows.map(async (execution) => ({
      execution,
      ...(await orLogged(
        db,
        execution,
        payloadRows.find((p) => p.executionId === execution.id),
      )),
      artifacts: artifactRows.filter((a) => a.executionId === execution.id),
      inputFiles: fileRows.filter((file) => file.executionId === execution.id),
      ...(showsItems(execution) && {
        items: itemRows.get(execution.id) ?? [],
      }),
    })),
  );
}

const showsItems = ({ results, endedAt }: ExecutionRow): boolean =>
  results !== null && endedAt !== null;

const lengthOf = (name: LongColumn) => sql<number>`coalesce(length(${payloads[name]}), 0)`;
const ifSmall = (name: LongColumn) =>
  sql<Uint8Array | null>`iif(${lengthOf(name)} <= ${given("most")}, ${payloads[name]}, null)`.mapWith(
    payloads[name],
  );

const outputs = tenantRows((own) =>
  query
    .select({
      executionId: payloads.executionId,
      stdoutBytes: lengthOf("stdout"),
      stderrBytes: lengthOf("stderr"),
      outputBytes: lengthOf("output"),
      stdinBytes: lengthOf("stdin"),
      args: payloads.args,
      program: payloads.program,
      tools: payloads.tools,
      compile: payloads.compile,
      stdout: ifSmall("stdout"),
      stderr: ifSmall("stderr"),
      output: ifSmall("output"),
      stdin: ifSmall("stdin"),
    })
    .from(payloads)
    .where(and(sql`${payloads.executionId} in ${listed("ids")}`, own(payloads))),
);

export async function withPayload(
  db: AnyDb,
  row: ExecutionRow,
  most?: number,
): Promise<FullExecution> {
  const [full] = await withPayloads(db, [row], most);
  if (!full) throw new Error(`execution ${row.id} has no payload`);
  return full;
}

type Streams = FullExecution["payload"];
/** The payload of a job that was given nothing and has no result. */
export const emptyPayload: Streams = {
  stdin: null,
  args: null,
  program: null,
  tools: null,
  stdout: null,
  stderr: null,
  output: null,
  compile: null,
};

/** Whether a job ended without a result, and its record shows the output that its last agent had posted. */
export const showsLog = ({ endedAt, resultHash, leaseId }: ExecutionRow): boolean =>
  endedAt !== null && resultHash === null && leaseId !== null;

/** The streams of the result; without one, the output that the last attempt had posted before its agent was lost. */
async function orLogged(
  db: AnyDb,
  execution: ExecutionRow,
  row: (Streams & Record<`${LongColumn}Bytes`, number>) | undefined,
): Promise<Pick<FullExecution, "payload" | "left">> {
  if (!row) return { payload: emptyPayload, left: {} };
  const isLeft = (name: LongColumn): boolean => row[name] === null && row[`${name}Bytes`] > 0;
  const left: FullExecution["left"] = {};
  for (const name of longColumns) if (isLeft(name)) left[name] = row[`${name}Bytes`];
  if (!showsLog(execution)) return { payload: row, left };
  const { id, attempt } = execution;
  const logged = await wholeOutput(db, { executionId: id, attempt });
  const { stdin } = left;
  return {
    payload: { ...row, ...logged, output: null },
    left: stdin === undefined ? {} : { stdin },
  };
}

/** Marks an execution as followed until a time (epoch ms), unless it has ended. Returns the agent that runs it. */
export const followExecution = tenantRow((own) =>
  query
    .update(executions)
    .set({ followedUntil: sql`${given("until")}` })
    .where(and(eq(executions.id, given("id")), sql`${executions.endedAt} is null`, own(executions)))
    .returning({ agentId: executions.agentId }),
);

/** Whether any execution waits, including those that may not start yet. */
export async function isAnyQueued(db: AnyDb): Promise<boolean> {
  return ((await waiting(db))?.n ?? 0) > 0;
}

const waiting = tenantRow(() => query.select({ n: queueLength.queued }).from(queueLength));

/** Whether a job of one of these types waits. */
export async function isAnyOfQueued(db: Database, jobTypes: string[]): Promise<boolean> {
  return (await waitingOf(db, { jobTypes: JSON.stringify(jobTypes) })) !== undefined;
}

const waitingOf = rowQuery(
  query
    .select({ seq: executions.seq })
    .from(executions)
    .where(sql`${isInLine} and ${executions.jobType} in ${listed("jobTypes")}`)
    .limit(1),
);

/** Number of waiting jobs, and of leases by agent. Calls wait for their session and use no slot. */
export async function readQueueStats(db: AnyDb): Promise<QueueStats> {
  const [pending, leased, held] = await Promise.all([
    waiting(db),
    countLeases(db),
    countSessions(db),
  ]);
  return {
    pending: pending?.n ?? 0,
    running: leased.reduce((sum, { n }) => sum + n, 0),
    runningByAgent: byAgent(leased),
    sessionsByAgent: byAgent(held),
  };
}

const byAgent = (counted: { agentId: string | null; n: number }[]) =>
  new Map(counted.map(({ agentId, n }) => [agentId ?? "", n]));

const countSessions = tenantRows((own) =>
  query
    .select({ agentId: sessions.agentId, n: count() })
    .from(sessions)
    .where(sql`${own.anybody(sessions, "the load of agents is public")} ${isHeldSession}`)
    .groupBy(sessions.agentId),
);

const countLeases = tenantRows((own) =>
  query
    .select({ agentId: executions.agentId, n: count() })
    .from(executions)
    .where(
      sql`${own.anybody(executions, "the load of agents is public")} ${isRunning} and ${executions.sessionId} is null`,
    )
    .groupBy(executions.agentId),
);

export type InputFileRow = typeof inputFiles.$inferSelect;
/** A file of a submission, whose execution is not stored yet. */
export type NewInputFile = Omit<InputFileRow, "executionId" | "toWork"> & { toWork?: boolean };
/** What records and agents see of a file. */
export type InputFileInfo = Omit<InputFileRow, "content" | "storeKey" | "owner">;

const columns = getTableColumns(inputFiles);
const { content: _content, storeKey: _storeKey, owner: _owner, ...infoColumns } = columns;

const insert = perTenant((own) =>
  insertWhere(
    inputFiles,
    Object.fromEntries(Object.keys(columns).map((name) => [name, given(name)])) as never,
    exists(
      query
        .select({ one: sql`1` })
        .from(executions)
        .where(and(eq(executions.id, given("executionId")), own(executions))),
    ),
  ),
);

/** Inserts the files of an execution, if it was stored. */
export function insertFiles(
  executionId: string,
  files: NewInputFile[],
  tenant: string,
): TenantFilled[] {
  return files.map((file) => insert({ toWork: false, ...file, executionId, tenant }));
}

/** The values of `insertFilesOf` for the files of a batch. */
export function filesJson(submitted: { id: string; files?: NewInputFile[] | undefined }[]): string {
  return JSON.stringify(
    submitted.flatMap(({ id, files = [] }) =>
      files.map(({ content, ...file }) => ({ ...file, id, content: content && hex(content) })),
    ),
  );
}

const field = (name: string) => sql`value ->> ${sql.raw(`'${name}'`)}`;

/** Inserts the files of all executions of a batch that were stored by it. */
export const insertFilesOf = (own: Owner, isNew: SQL) => sql`
  insert into ${inputFiles}
    (execution_id, name, size_bytes, sha256, content_type, content, store_key, owner)
  select ${field("id")}, ${field("name")}, ${field("sizeBytes")}, ${field("sha256")},
    ${field("contentType")}, unhex(${field("content")}), ${field("storeKey")}, ${field("owner")}
  from json_each(${given("files")})
  where exists (select 1 from ${executions}
    where ${executions.id} = ${field("id")} and ${own(executions)}) and ${isNew}`;

/** The files of executions, by name. */
export async function filesOf(
  db: AnyDb,
  rows: Pick<ExecutionRow, "id" | "inputs">[],
): Promise<InputFileInfo[]> {
  const ids = rows.flatMap(({ id, inputs }) => (inputs === null ? [] : [id]));
  return ids.length === 0 ? [] : infos(db, { ids: JSON.stringify(ids) });
}

const infos = tenantRows((own) =>
  query
    .select(infoColumns)
    .from(inputFiles)
    .where(and(sql`${inputFiles.executionId} in ${listed("ids")}`, own(inputFiles)))
    .orderBy(asc(inputFiles.name)),
);

const { executionId: _, ...taken } = columns;
/** The files of an execution with their bytes, for a job that derives from it. */
export const wholeFilesOf = tenantRows((own) =>
  query
    .select(taken)
    .from(inputFiles)
    .where(and(eq(inputFiles.executionId, given("id")), own(inputFiles))),
);

/** A file of an execution, by its name or its hash. */
export async function findInputFile(
  db: AnyDb,
  executionId: string,
  file: { name: string } | { sha256: string },
): Promise<InputFileRow | undefined> {
  return "name" in file
    ? byName(db, { executionId, ...file })
    : byHash(db, { executionId, ...file });
}

const fileBy = (column: typeof inputFiles.name | typeof inputFiles.sha256, value: string) =>
  tenantRow((own) =>
    query
      .select()
      .from(inputFiles)
      .where(
        and(
          eq(inputFiles.executionId, given("executionId")),
          eq(column, given(value)),
          own(inputFiles),
        ),
      )
      .limit(1),
  );
const byName = fileBy(inputFiles.name, "name");
const byHash = fileBy(inputFiles.sha256, "sha256");
