import type { InStatement, ResultSet } from "@libsql/client/web";
import { and, eq, gt, isNotNull, isNull, lte, sql, type SQL, type SQLWrapper } from "drizzle-orm";
import type { LostOutcome } from "../../shared/wire/executions.ts";
import type { ResultReport } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { Database } from "../store/database.ts";
import { agents, executions, isRunning, payloads, queueLength, tenants } from "../store/schema.ts";
import {
  decoder,
  given,
  listed,
  query,
  rowQuery,
  rowsQuery,
  statement,
  type Values,
} from "../store/statement.ts";
import {
  type AnyDb,
  batch,
  type Owner,
  perTenant,
  tenantRows,
  unchangedUpdates,
} from "../store/tenant.ts";
import { keepItems } from "./output.ts";
import {
  callLostMessage,
  cancelledMessage,
  type ExecutionEvent,
  type Loss,
  lossOf,
  lostMessage,
  lostOnceMessage,
  type Refusal,
  transition,
} from "./rules.ts";
import {
  bytesOf,
  executionColumns,
  type ExecutionRow,
  findByLease,
  findExecution,
  isShared,
  type SubmittedPayload,
} from "./sql.ts";

const { id, attempt, agentId, startedAt, codeStartedAt, lostAttempts } = executions;

/** The values of a lost attempt that are not in the row. */
interface LossInSql {
  outcome: SQLWrapper | LostOutcome;
  /** JSON text, or null. */
  error: SQLWrapper | null;
  /** Epoch ms. */
  now: SQLWrapper;
}

/**
 * The lost attempts of a row with its present lease. Each statement that ends a lease without a result
 * writes it, so a job that succeeds at its first attempt costs nothing.
 */
export function withLoss({ outcome, error, now }: LossInSql): SQL {
  const before = sql`coalesce(${lostAttempts}, '[]')`;
  const isFull = sql`json_array_length(${before}) >= ${limits.lostAttemptsMax}`;
  const kept = sql`iif(${isFull}, json_remove(${before}, '$[0]'), ${before})`;
  const name = sql`(select ${agents.name} from ${agents} where ${agents.id} = ${agentId})`;
  return sql`json_insert(${kept}, '$[#]', json_object(
    'attempt', ${attempt}, 'agentId', ${agentId}, 'agent', ${name}, 'claimedAt', ${startedAt},
    'codeStartedAt', ${codeStartedAt}, 'endedAt', cast(${now} as integer),
    'outcome', ${outcome}, 'error', json(${error})))`;
}

/** What is known of the attempts of an execution: those that were lost, and the columns of the last one. */
export type AttemptHistory = Awaited<ReturnType<typeof readAttempts>>[number];

/** The attempts of executions. All columns come from one read: an execution may have changed since its row was read. */
export const readAttempts = tenantRows((own) =>
  query
    .select({
      id,
      lostAttempts,
      attempt,
      leaseId: executions.leaseId,
      agentId,
      /** Null if the agent is no longer known. */
      agent: agents.name,
      startedAt,
      codeStartedAt,
      endedAt: executions.endedAt,
      resultHash: executions.resultHash,
      error: executions.error,
    })
    .from(executions)
    .leftJoin(agents, eq(agents.id, agentId))
    .where(and(sql`${id} in ${listed("ids")}`, own(executions))),
);

/** A random UUID (version 4) made by the database, one per row of a statement. */
export const randomUuid = sql<string>`lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`;

/** What a claim writes by its terms. */
export const newLease = {
  leaseId: randomUuid,
  agentId: sql`${given("agentId")}`,
  leaseExpiresAt: sql`${given("expiresAt")}`,
  startedAt: sql`${given("now")}`,
};

/** The plus stops SQLite from using the index on job types, which covers all history. */
const unindexedJobType = sql`+${executions.jobType}`;

export interface LeaseTerms {
  agentId: string;
  expiresAt: number;
  now: number;
}

const { code, input, stdin, args, program, tools, call } = payloads;
const payloadColumns = { code, input, stdin, args, program, tools, call };

/** An execution that has just been leased, with what its code is given. */
export type Claimed = ExecutionRow & { payload: SubmittedPayload };

const ofPayload = Object.values(payloadColumns).map(
  (column) =>
    sql`(select ${sql.identifier(column.name)} from ${payloads} where execution_id = ${id})`,
);
const decodeRow = decoder(executionColumns);
const decodePayload = decoder(payloadColumns);
const ownColumns = Object.keys(executionColumns).length;

/** What a claim returns of each execution that it leases: nobody has to read it again. */
export const claimedColumns = {
  ...executionColumns,
  ...Object.fromEntries(ofPayload.map((column, at) => [`payload ${at}`, column])),
};

export function decodeClaimed(row: ResultSet["rows"][number]): Claimed {
  const payload = Array.prototype.slice.call(row, ownColumns) as unknown as typeof row;
  return Object.assign(decodeRow(row), { payload: decodePayload(payload) });
}

/**
 * Renews and returns up to `count` leases of this agent that it does not know, because the reply was
 * lost. Their code has not started. Leases that the agent cannot get now, because it has no slot or the
 * job type no longer exists, are left to expire.
 */
export async function undeliveredLeases(
  db: Database,
  terms: LeaseTerms,
  held: string[],
  count: number,
  jobTypes: string[],
): Promise<Claimed[]> {
  const known = { held: JSON.stringify(held), jobTypes: JSON.stringify(jobTypes) };
  return renewMissed(db, await missedJobs(db, { ...terms, ...known, count }), terms);
}

/** The same of calls, which need no slot. */
export async function undeliveredCalls(
  db: Database,
  terms: LeaseTerms,
  held: string[],
): Promise<Claimed[]> {
  return renewMissed(db, await missedCalls(db, { ...terms, held: JSON.stringify(held) }), terms);
}

async function renewMissed(
  db: Database,
  found: { leaseId: string | null }[],
  terms: LeaseTerms,
): Promise<Claimed[]> {
  if (found.length === 0) return [];
  const leaseIds = JSON.stringify(found.map(({ leaseId }) => leaseId));
  const { rows } = await db.client.execute(renewUnstarted({ ...terms, leaseIds }));
  return rows.map(decodeClaimed).sort((a, b) => a.seq - b.seq);
}

const renewUnstarted = statement(
  query
    .update(executions)
    .set({ leaseExpiresAt: sql`${given("expiresAt")}` })
    .where(
      and(
        isRunning,
        gt(executions.leaseExpiresAt, given("now")),
        isNull(codeStartedAt),
        sql`${executions.leaseId} in ${listed("leaseIds")}`,
      ),
    )
    .returning(claimedColumns),
);

/** Leases of this agent that it does not list. */
export const isMissed = and(
  isRunning,
  eq(executions.agentId, given("agentId")),
  gt(executions.leaseExpiresAt, given("now")),
  isNull(executions.codeStartedAt),
  sql`${executions.leaseId} not in ${listed("held")}`,
);
const missedJobs = rowsQuery(
  query
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(
      and(
        isMissed,
        isNull(executions.sessionId),
        sql`${unindexedJobType} in ${listed("jobTypes")}`,
      ),
    )
    .orderBy(executions.seq)
    .limit(given("count")),
);
const missedCalls = rowsQuery(
  query
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(and(isMissed, isNotNull(executions.sessionId))),
);

/** The SHA-256 of its agent's token is null if the agent is unknown. `queued` is the number of jobs that wait. */
export type Leased = ExecutionRow & { tokenHash: string | null; queued: number };

const jobsQueued = sql<number>`(select ${queueLength.queued} from ${queueLength})`;
/** The execution that has or had a lease. */
export const findLeased = rowQuery(
  query
    .select({ ...executionColumns, tokenHash: agents.tokenHash, queued: jobsQueued })
    .from(executions)
    .leftJoin(agents, eq(agents.id, executions.agentId))
    .where(eq(executions.leaseId, given("leaseId"))),
);

/** The leases that an agent holds. */
export async function leasesOf(db: Database, agentId: string): Promise<string[]> {
  const found = await db.orm
    .select({ leaseId: executions.leaseId })
    .from(executions)
    .where(and(isRunning, eq(executions.agentId, agentId)));
  return found.flatMap(({ leaseId }) => leaseId ?? []);
}

/**
 * Renews the listed leases that the agent still holds, and returns them. Leases that would gain little
 * are only read: polls follow each other quickly while jobs are short, and each write costs a commit.
 */
export async function renewLeases(
  db: Database,
  terms: LeaseTerms,
  leaseIds: string[],
): Promise<{ leaseId: string; cancelRequested: boolean; followedUntil: number | null }[]> {
  if (leaseIds.length === 0) return [];
  const { expiresAt, now } = terms;
  const values = { ...terms, leaseIds: JSON.stringify(leaseIds) };
  const held = await heldLeases(db, values);
  const enoughAt = expiresAt - (expiresAt - now) * renewalGain;
  const isDue = held.some((lease) => (lease.leaseExpiresAt ?? 0) < enoughAt);
  const renewed = isDue ? await renewal(db, values) : held;
  return renewed.flatMap(({ leaseId, cancelRequested, followedUntil }) =>
    leaseId === null ? [] : [{ leaseId, cancelRequested, followedUntil }],
  );
}

/** A lease is renewed once this fraction of its time has passed. Agents allow for ten times as much. */
export const renewalGain = 0.01;

const renewedColumns = {
  leaseId: executions.leaseId,
  cancelRequested: executions.cancelRequested,
  followedUntil: executions.followedUntil,
  leaseExpiresAt: executions.leaseExpiresAt,
};
const isHeld = and(
  isRunning,
  // The plus stops SQLite from using the index on agents: the index on lease ids is better.
  eq(sql`+${executions.agentId}`, given("agentId")),
  gt(executions.leaseExpiresAt, given("now")),
  sql`${executions.leaseId} in ${listed("leaseIds")}`,
);
const heldLeases = rowsQuery(query.select(renewedColumns).from(executions).where(isHeld));
const renewal = rowsQuery(
  query
    .update(executions)
    .set({ leaseExpiresAt: sql`${given("expiresAt")}` })
    .where(isHeld)
    .returning(renewedColumns),
);

/**
 * Ends or requeues every execution whose lease has expired, and returns their new state. One statement
 * does for all of them what `transition` does for one on `expire`.
 */
export async function expireLeases(db: Database, now: number): Promise<ExecutionRow[]> {
  // Reads first, because an update would take the write lock each time.
  return (await overdue(db, { now })) ? expireOverdue(db, { now }) : [];
}

export const isOverdue = and(isRunning, lte(executions.leaseExpiresAt, given("now")));
const overdue = rowQuery(
  query.select({ id: executions.id }).from(executions).where(isOverdue).limit(1),
);

const { maxAttempts, cancelRequested, leaseId, availableAt } = executions;
const isLast = sql`${attempt} >= ${maxAttempts}`;
const lostText = sql`case when ${executions.sessionId} is not null then ${callLostMessage}
  when ${maxAttempts} = 1 then ${lostOnceMessage} else ${lostMessage} end`;
const phase = sql`iif(${codeStartedAt} is null, 'startup', 'execution')`;
const lost = sql`json_object('type', 'internal_error', 'message', ${lostText}, 'phase', ${phase})`;
const cancelled = sql`json_object('type', 'cancelled', 'message', ${cancelledMessage}, 'phase', ${phase})`;
/** Picks one of three values: for a cancelled job, for a job without attempts left, for a job to retry. */
const byFate = (ifCancelled: unknown, ifLost: unknown, ifRetried: unknown) =>
  sql`case when ${cancelRequested} then ${ifCancelled} when ${isLast} then ${ifLost} else ${ifRetried} end`;
const nullIfRetried = (column: unknown) => byFate(column, column, null);

const expireOverdue = rowsQuery(
  query
    .update(executions)
    .set({
      lostAttempts: withLoss({ outcome: "lease_expired", error: null, now: given("now") }),
      status: byFate("cancelled", "failed", "queued"),
      error: byFate(cancelled, lost, null),
      endedAt: byFate(given("now"), given("now"), null),
      availableAt: byFate(availableAt, availableAt, given("now")),
      leaseId: nullIfRetried(leaseId),
      agentId: nullIfRetried(agentId),
      codeStartedAt: nullIfRetried(codeStartedAt),
      startedAt: nullIfRetried(startedAt),
      leaseExpiresAt: null,
      exitCode: null,
    })
    .where(isOverdue)
    .returning(executionColumns),
);

/** What the code of leased executions is given, by execution id. */
export async function submittedPayloads(
  db: AnyDb,
  ids: string[],
): Promise<Map<string, SubmittedPayload>> {
  if (ids.length === 0) return new Map();
  const rows = await submitted(db, { ids: JSON.stringify(ids) });
  return new Map(rows.map(({ id, ...payload }) => [id, payload]));
}

/** The same of one execution. */
export async function findSubmitted(db: AnyDb, id: string): Promise<SubmittedPayload | undefined> {
  return (await submittedPayloads(db, [id])).get(id);
}

const submitted = tenantRows((own) =>
  query
    .select({ id: payloads.executionId, ...payloadColumns })
    .from(payloads)
    .where(and(sql`${payloads.executionId} in ${listed("ids")}`, own(payloads))),
);

/** A result as the store keeps it: streams as bytes, and the hash of its post. */
export interface Result extends Omit<ResultReport, "stdout_base64" | "stderr_base64"> {
  stdout: Uint8Array;
  stderr: Uint8Array;
  output: Uint8Array | null;
  hash: string;
}

/** Ends an execution with the result of its lease. Writes record and payload in one transaction. */
export async function finishExecution(
  db: Database,
  leaseId: string,
  result: Result,
  now: number,
  read?: ExecutionRow,
): Promise<Advanced> {
  const { items } = result;
  return advance(
    db,
    { leaseId },
    {
      kind: "complete",
      leaseId,
      status: result.status,
      error: result.error,
      exitCode: result.exit_code,
    },
    now,
    {
      columns: {
        resultHash: result.hash,
        // A job whose code never started keeps the reference from its claim.
        ...(result.job_ref !== null && { jobRef: result.job_ref }),
        containerRuntime: result.container_runtime,
        containerBackend: result.container_backend ?? null,
        timing: result.timing,
        maxRssMb: result.resource_usage?.max_rss_mb ?? null,
        cpuTimeMs: result.resource_usage?.cpu_time_ms ?? null,
        wallTimeMs: result.resource_usage?.wall_time_ms ?? null,
        stdoutTruncated: result.stdout_truncated,
        stderrTruncated: result.stderr_truncated,
        ...(result.results_truncated && { results: "truncated" as const }),
        outputBytes: bytesOf(result.stdout, result.stderr, result.output),
        warnings: result.warnings?.length ? result.warnings : null,
      },
      statements: [
        keepOutput({ leaseId, ...result, compile: result.compile ?? null }),
        ...(items ? [keepItems(items, { leaseId, hash: result.hash, now })] : []),
      ],
    },
    read,
  );
}

const endedByThis = query
  .select({ id: executions.id })
  .from(executions)
  .where(and(eq(executions.leaseId, given("leaseId")), eq(executions.resultHash, given("hash"))));
const bytes = (name: string) => given(name) as never;
const keepOutput = statement(
  query
    .update(payloads)
    .set({
      stdout: bytes("stdout"),
      stderr: bytes("stderr"),
      output: bytes("output"),
      compile: bytes("compile"),
    })
    .where(eq(payloads.executionId, sql`${endedByThis}`)),
);

export type Advanced =
  /**
   * `letsStart`: which agent may now start a job that its tenant's limit or share has held back: any, or only the agent
   * that ran this execution. `queued` is the number of jobs that wait.
   */
  | { kind: "changed"; execution: ExecutionRow; letsStart: "any" | "own" | null; queued: number }
  | { kind: "refused"; refusal: Refusal; execution: ExecutionRow }
  | { kind: "not_found" };

/** Further writes of an event in the same transaction: columns of the row, and guarded statements. */
interface Companion {
  columns?: Partial<typeof executions.$inferInsert>;
  statements?: InStatement[];
}

/** An execution by its id, or by its last lease. */
type Target = { id: string } | { leaseId: string };

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
      const { followed_until: followedUntil, lets_start: letsStart, queued } = row;
      return {
        kind: "changed",
        execution: { ...execution, ...change, followedUntil } as ExecutionRow,
        letsStart: letsStart as "any" | "own" | null,
        queued: Number(queued),
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
  outcome: given("loss.outcome"),
  error: given("loss.error"),
  now: given("loss.now"),
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
      .returning({
        followedUntil: executions.followedUntil,
        letsStart: letsStart(own),
        queued: jobsQueued.as("queued"),
      }),
  ),
);

function lossValues({ outcome, error }: Loss, now: number): Values {
  return {
    "loss.outcome": outcome,
    "loss.error": error && JSON.stringify(error),
    "loss.now": now,
  };
}
