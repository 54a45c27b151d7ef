import { and, desc, eq, lt, sql, type SQL } from "drizzle-orm";
import type { EndReason, ExecutionError } from "../../shared/wire/errors.ts";
import type { agentsEnds, SessionReady } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { SessionStatus, sessionStatuses } from "../../shared/wire/sessions.ts";
import { withLoss } from "../jobs/lease.ts";
import { callLostMessage, isLeased, queuedAgain } from "../jobs/rules.ts";
import { executionColumns, type ExecutionRow } from "../jobs/sql.ts";
import { type Database, insertWhere } from "../store/database.ts";
import {
  executions,
  isOpenSession,
  isQueuedSession,
  isRunningCall,
  isWaitingCall,
  sessions,
  tenants,
} from "../store/schema.ts";
import { decoder, given, listed, query, statement } from "../store/statement.ts";
import {
  type AnyDb,
  batch,
  listRows,
  type Owner,
  perTenant,
  type TenantFilled,
  tenantRow,
  tenantRows,
  unchangedUpdates,
} from "../store/tenant.ts";

/** The columns of a session on which its transitions depend. Times are epoch milliseconds. */
export interface SessionState {
  status: (typeof sessionStatuses)[number];
  reason: EndReason | null;
  error: ExecutionError | null;
  attempt: number;
  leaseId: string | null;
  agentId: string | null;
  leaseExpiresAt: number | null;
  jobRef: string | null;
  env: Record<string, string> | null;
  containerRuntime: string | null;
  containerBackend: SessionReady["container_backend"] | null;
  pythonVersion: string | null;
  startedAt: number | null;
  readyAt: number | null;
  usedAt: number | null;
  endedAt: number | null;
  expiresAt: number;
  idleTimeoutS: number | null;
}

export type SessionEvent =
  | { kind: "ready"; leaseId: string; report: SessionReady }
  /** The agent gives back a session that was never ready. */
  | { kind: "release"; leaseId: string; error: ExecutionError }
  /** The agent's sandbox of a ready session is gone. */
  | { kind: "end"; leaseId: string; reason: (typeof agentsEnds)[number]; error: ExecutionError }
  /** The agent has ended in order. */
  | { kind: "leave"; leaseId: string }
  /** The agent's process has died. */
  | { kind: "crash"; leaseId: string }
  | { kind: "expire" }
  /** No call has been open for the idle timeout: whoever applies it checks that no call is open. */
  | { kind: "idle" }
  | { kind: "lifetime" }
  /** The build of the image that it waited for has failed. */
  | { kind: "fail"; error: ExecutionError }
  | { kind: "delete" };

type SessionRefusal =
  | "ended"
  | "lease_lost"
  | "not_queued"
  | "not_starting"
  | "not_ready"
  | "not_due";
type SessionTransition =
  | { ok: true; change: Partial<SessionState> }
  | { ok: false; refusal: SessionRefusal };

/**
 * Applies an event to a session at a time (epoch ms): returns the columns that change, or a refusal. Before it is
 * ready, a session may get another agent. After that it ends with its interpreter, and never gets a new one.
 */
export function sessionTransition(
  state: SessionState,
  event: SessionEvent,
  now: number,
): SessionTransition {
  if (state.status === "ended") return refuse("ended");
  switch (event.kind) {
    case "delete":
      return end("deleted", null, now);
    case "fail":
      return state.status === "queued"
        ? end("start_failed", event.error, now)
        : refuse("not_queued");
    case "lifetime":
      return state.expiresAt <= now ? end("lifetime", null, now) : refuse("not_due");
    case "idle":
      return idleAt(state) <= now ? end("idle", null, now) : refuse("not_due");
    case "expire":
      if (state.status === "queued" || isLeased(state, now)) return refuse("not_due");
      return lose(state, now);
    case "crash":
      return holds(state, event, now) ? lose(state, now) : refuse("lease_lost");
    case "leave":
      if (!holds(state, event, now)) return refuse("lease_lost");
      if (state.status === "ready") return end("agent_stopped", stopped, now);
      return change({ ...queuedAgain, attempt: state.attempt - 1 });
    case "release":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return state.status === "starting"
        ? tryAgain(state, event.error, now)
        : refuse("not_starting");
    case "end":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return state.status === "ready" ? end(event.reason, event.error, now) : refuse("not_ready");
    case "ready":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return state.status === "starting" ? becomeReady(event.report, now) : refuse("not_starting");
  }
}

/** When a ready session ends unless it gets a call; infinite if it has no such time. */
export function idleAt({ status, readyAt, usedAt, idleTimeoutS }: SessionState): number {
  if (status !== "ready" || idleTimeoutS === null) return Infinity;
  return Math.max(readyAt ?? 0, usedAt ?? 0) + idleTimeoutS * 1000;
}

function holds(state: SessionState, { leaseId }: { leaseId: string }, now: number): boolean {
  return state.leaseId === leaseId && isLeased(state, now);
}

function becomeReady(report: SessionReady, now: number): SessionTransition {
  return change({
    status: "ready",
    readyAt: now,
    ...(report.job_ref !== null && { jobRef: report.job_ref }),
    containerRuntime: report.container_runtime,
    containerBackend: report.container_backend,
    pythonVersion: report.python_version,
  });
}

function lose(state: SessionState, now: number): SessionTransition {
  if (state.status === "ready") return end("agent_lost", lost, now);
  return tryAgain(state, lostTwice, now);
}

function tryAgain(
  { attempt }: SessionState,
  error: ExecutionError,
  now: number,
): SessionTransition {
  return attempt >= limits.maxAttempts ? end("start_failed", error, now) : change(queuedAgain);
}

function failure(message: string, phase: ExecutionError["phase"]): ExecutionError {
  return { type: "internal_error", message, phase };
}
const lost = failure("The agent that held the session was lost.", "execution");
const stopped = failure("The agent that held the session was stopped.", "execution");
const lostTwice = failure(
  `The agent was lost while it started the session, ${limits.maxAttempts} times.`,
  "startup",
);

function end(reason: EndReason, error: ExecutionError | null, now: number): SessionTransition {
  return change({ status: "ended", reason, error, endedAt: now, leaseExpiresAt: null, env: null });
}

function change(columns: Partial<SessionState>): SessionTransition {
  return { ok: true, change: columns };
}

function refuse(refusal: SessionRefusal): SessionTransition {
  return { ok: false, refusal };
}

export type SessionRow = typeof sessions.$inferSelect;

const findBy = (column: typeof sessions.id | typeof sessions.leaseId) => {
  const find = tenantRow((own) =>
    query
      .select()
      .from(sessions)
      .where(and(eq(column, given("value")), own(sessions))),
  );
  return (db: AnyDb, value: string): Promise<SessionRow | undefined> => find(db, { value });
};
export const findSession = findBy(sessions.id);
export const findSessionByLease = findBy(sessions.leaseId);

/** Sessions by their ids, in any order. */
export const findSessions = tenantRows((own) =>
  query
    .select()
    .from(sessions)
    .where(and(sql`${sessions.id} in ${listed("ids")}`, own(sessions))),
);

/**
 * A page of sessions, newest first.
 *
 * @param filter `status`: without it, any. `before`: the id of a session; only those that were made before it. Ids are
 *   UUIDs of version 7, so they are ordered by time.
 */
export async function listSessions(
  db: AnyDb,
  { status, before }: { status?: SessionStatus | undefined; before?: string | undefined },
  limit: number,
  offset: number,
): Promise<SessionRow[]> {
  return listRows(db, (own) =>
    query
      .select()
      .from(sessions)
      .where(
        and(
          status && isOf(status),
          before === undefined ? undefined : lt(sessions.id, before),
          own(sessions),
        ),
      )
      .orderBy(desc(sessions.id))
      .limit(limit)
      .offset(offset),
  );
}

/** All but a few sessions have ended, so open ones come by their index. */
const isOf = (status: SessionStatus): SQL =>
  status === "ended"
    ? sql`${sessions.status} = 'ended'`
    : sql`${isOpenSession} and +${sessions.status} = ${status}`;

/** The sessions of a job type that wait for an agent. */
export async function queuedSessions(db: Database, jobType: string): Promise<string[]> {
  const which = and(isQueuedSession, eq(sessions.jobType, jobType));
  const found = await db.orm.select({ id: sessions.id }).from(sessions).where(which);
  return found.map(({ id }) => id);
}

/** The call that runs in a session. */
export const findRunningCall = tenantRow((own) =>
  query
    .select({ id: executions.id })
    .from(executions)
    .where(and(isRunningCall, eq(executions.sessionId, given("id")), own(executions))),
);

/** Which of these sessions have calls that wait or run. */
export async function busySessions(db: AnyDb, ids: string[]): Promise<Set<string>> {
  if (ids.length === 0) return new Set();
  const found = await withOpenCalls(db, { ids: JSON.stringify(ids) });
  return new Set(found.flatMap(({ id }) => id ?? []));
}

const withOpenCalls = tenantRows((own) =>
  query
    .selectDistinct({ id: executions.sessionId })
    .from(executions)
    .where(
      and(
        sql`${executions.sessionId} in ${listed("ids")}`,
        sql`${executions.endedAt} is null`,
        own(executions),
      ),
    ),
);

const newColumns = [
  "id",
  "jobType",
  "requirements",
  "startupTimeoutS",
  "env",
  "createdAt",
  "expiresAt",
  "idleTimeoutS",
  "metadata",
  "idempotencyKey",
  "submissionHash",
  "keyId",
  "correlationId",
  "clientIp",
  "traceparent",
] as const;
export type NewSession = Pick<SessionRow, (typeof newColumns)[number]> & { tenant?: string };

/** The new session, the one that has its idempotency key, or nothing if a limit of the tenant is reached. */
type Created = { kind: "created" | "existing"; session: SessionRow } | { kind: "full" };

/**
 * Queues a session, unless its idempotency key is taken, or its tenant has `most` open ones or would store too much.
 */
export async function createSession(
  db: AnyDb,
  session: NewSession,
  most: number,
): Promise<Created> {
  const values = { tenant: "default", ...session, most, bytes: sessionBytes(session) };
  const [inserted] = await batch(db, [insert(values)]);
  const isNew = inserted?.rowsAffected === 1;
  const found = await find(db, values);
  return found ? { kind: isNew ? "created" : "existing", session: found } : { kind: "full" };
}

const encoder = new TextEncoder();
/** Bytes of a session that `tenants.stored_bytes` counts. */
export function sessionBytes({
  requirements,
  metadata,
  env,
}: Pick<NewSession, "requirements" | "metadata" | "env">): number {
  return [requirements, metadata, env].reduce<number>(
    (sum, part) => sum + (part === null ? 0 : encoder.encode(JSON.stringify(part)).length),
    0,
  );
}

const hasIdOrKey = (own: Owner) =>
  sql`(${sessions.id} = ${given("id")} or ${sessions.idempotencyKey} = ${given("idempotencyKey")}) and ${own(sessions)}`;

const insert = perTenant((own) => {
  const row = Object.fromEntries(newColumns.map((name) => [name, given(name)]));
  const open = sql`(select count(*) from ${sessions} where ${isOpenSession} and ${own(sessions)})`;
  return insertWhere(
    sessions,
    { ...row, tenant: own.tenant } as never,
    and(
      sql`not exists (select 1 from ${sessions} where ${hasIdOrKey(own)})`,
      sql`${open} < ${given("most")}`,
      sql`not exists (select 1 from ${tenants} where ${own(tenants)}
        and ${tenants.storedBytes} + ${given("bytes")} > ${tenants.maxStoredBytes})`,
    ),
  );
});

const find = tenantRow((own) =>
  query
    .select()
    .from(sessions)
    .where(hasIdOrKey(own))
    .orderBy(eq(sessions.id, given("id")))
    .limit(1),
);

/** Changes of a session that has not ended. Each returns the changed session, or undefined if it was refused. */

const isOpenWithId = (own: Owner) =>
  sql`${sessions.id} = ${given("id")} and ${isOpenSession} and ${own(sessions)}`;

type SessionChange = Partial<Pick<SessionRow, "expiresAt" | "idleTimeoutS" | "metadata">>;

/** Changes what is given. */
export async function changeSession(
  db: AnyDb,
  id: string,
  change: SessionChange,
): Promise<SessionRow | undefined> {
  const { expiresAt = null, idleTimeoutS = null, metadata = null } = change;
  const setsIdle = Number("idleTimeoutS" in change);
  return update(db, { id, expiresAt, setsIdle, idleTimeoutS, metadata });
}

const update = tenantRow((own) =>
  query
    .update(sessions)
    .set({
      expiresAt: sql`coalesce(${given("expiresAt")}, ${sessions.expiresAt})`,
      idleTimeoutS: sql`iif(${given("setsIdle")}, ${given("idleTimeoutS")}, ${sessions.idleTimeoutS})`,
      metadata: sql`coalesce(${sql.param(given("metadata"), sessions.metadata)}, ${sessions.metadata})`,
    })
    .where(isOpenWithId(own))
    .returning(),
);

type Contextual = { id: string; context: string };
type ChangeContexts = (db: AnyDb, of: Contextual) => Promise<SessionRow | undefined>;

/** Adds a context, unless the session has as many as it may. */
export const addContext: ChangeContexts = tenantRow((own) =>
  query
    .update(sessions)
    .set({ contexts: sql`json_insert(${sessions.contexts}, '$[#]', ${given("context")})` })
    .where(
      and(
        isOpenWithId(own),
        // One more is the default one.
        sql`json_array_length(${sessions.contexts}) < ${limits.contextsMax - 1}`,
      ),
    )
    .returning(),
);

/** Removes a context in which no call waits or runs. */
export const removeContext: ChangeContexts = tenantRow((own) =>
  query
    .update(sessions)
    .set({
      contexts: sql`(select json_group_array(value) from json_each(${sessions.contexts})
        where value <> ${given("context")})`,
    })
    .where(
      and(
        isOpenWithId(own),
        sql`exists (select 1 from json_each(${sessions.contexts}) where value = ${given("context")})`,
        sql`not exists (select 1 from ${executions} where ${executions.sessionId} = ${sessions.id}
          and ${executions.context} = ${given("context")} and ${executions.endedAt} is null
          and ${own(executions)})`,
      ),
    )
    .returning(),
);

type AdvancedSession =
  /** `calls`: those that have ended with it, or are asked to end. */
  | { kind: "changed"; session: SessionRow; calls: ExecutionRow[] }
  | { kind: "refused"; refusal: SessionRefusal; session: SessionRow }
  | { kind: "not_found" };

type Target = { id: string } | { leaseId: string };

/**
 * Applies an event to one session, as `advance` does to an execution. If it ends the session, its calls end in the
 * same transaction.
 *
 * @param companions Further statements of the transaction, right after the change.
 */
export async function advanceSession(
  db: AnyDb,
  target: Target,
  event: SessionEvent,
  now: number,
  companions: TenantFilled[] = [],
): Promise<AdvancedSession> {
  for (;;) {
    const session = await ("id" in target
      ? findSession(db, target.id)
      : findSessionByLease(db, target.leaseId));
    if (!session) return { kind: "not_found" };
    const result = sessionTransition(session, event, now);
    if (!result.ok) return { kind: "refused", refusal: result.refusal, session };

    const { change } = result;
    const ends = change.status === "ended";
    const [updated, ...others] = await batch(db, [
      updateUnchanged(session, change, event.kind === "idle"),
      ...companions,
      ...(ends ? endCalls(session.id, change.reason!, now) : []),
    ]);
    if (updated?.rowsAffected === 1) {
      const calls = others.slice(companions.length).flatMap(({ rows }) => rows.map(decode));
      return { kind: "changed", session: { ...session, ...change }, calls };
    }
    // A call came before the idle session could end.
    if (event.kind === "idle") return { kind: "refused", refusal: "not_due", session };
  }
}

const decode = decoder(executionColumns);

const decidingColumns = [
  "id",
  "status",
  "attempt",
  "leaseId",
  "leaseExpiresAt",
  "usedAt",
  "expiresAt",
  "idleTimeoutS",
] as const;

const updateUnchanged = unchangedUpdates(sessions, decidingColumns, (set, isUnchanged, ifUnused) =>
  perTenant((own) => {
    const isUnused = sql`not exists (select 1 from ${executions} where ${own(executions)}
      and ${executions.sessionId} = ${sessions.id} and ${executions.endedAt} is null)`;
    const conditions = [...isUnchanged, ifUnused ? isUnused : undefined, own(sessions)];
    return query
      .update(sessions)
      .set(set)
      .where(and(...conditions));
  }),
);

/** Whether a session ended because its sandbox died: the call that ran has ended too, and its agent tells how. */
export function isOfSandbox(reason: EndReason | null): boolean {
  return reason === "engine_lost" || reason === "out_of_memory";
}

/**
 * Ends the calls of a session that has just ended. Those that wait are cancelled. The one that runs is asked to
 * end, so that its output is kept, unless its sandbox died; if its agent is lost, it has failed.
 */
function endCalls(id: string, reason: EndReason, now: number): TenantFilled[] {
  const values = { sessionId: id, reason, now };
  if (isOfSandbox(reason)) return [cancelWaiting(values)];
  const running = reason === "agent_lost" ? failRunning : askRunning;
  return [cancelWaiting(values), running(values)];
}

/** The session ended in the same transaction, at this time. */
const isOfEnded = (own: Owner) =>
  and(
    eq(executions.sessionId, given("sessionId")),
    sql`exists (select 1 from ${sessions} where ${sessions.id} = ${given("sessionId")}
      and ${sessions.endedAt} = ${given("now")} and ${own(sessions)})`,
    own(executions),
  );

const cancelWaiting = perTenant((own) =>
  query
    .update(executions)
    .set({
      status: "cancelled",
      error: sql`json_object('type', 'cancelled', 'message', 'The session ended: ' || ${given("reason")} || '.', 'phase', 'startup')`,
      endedAt: sql`${given("now")}`,
    })
    .where(and(isWaitingCall, isOfEnded(own)))
    .returning(executionColumns),
);

const askRunning = perTenant((own) =>
  query
    .update(executions)
    .set({ cancelRequested: true })
    .where(and(isRunningCall, isOfEnded(own)))
    .returning(executionColumns),
);

const phase = sql`iif(${executions.codeStartedAt} is null, 'startup', 'execution')`;
const failRunning = perTenant((own) =>
  query
    .update(executions)
    .set({
      lostAttempts: withLoss({ outcome: "lease_expired", error: null, now: given("now") }),
      status: "failed",
      error: sql`json_object('type', 'internal_error', 'message', ${callLostMessage}, 'phase', ${phase})`,
      endedAt: sql`${given("now")}`,
      leaseExpiresAt: null,
    })
    .where(and(isRunningCall, isOfEnded(own)))
    .returning(executionColumns),
);

/** Removes up to `rows` sessions that ended before a time and have no call any more. Returns their number. */
export async function forgetSessions(db: Database, before: number, rows: number): Promise<number> {
  const { rowsAffected } = await db.client.execute(forget({ before, rows }));
  return rowsAffected;
}

const forget = statement(sql`
  delete from ${sessions} where seq in (
    select ${sessions.seq} from ${sessions}
    where ${sessions.status} = 'ended' and ${sessions.endedAt} < ${given("before")}
      and not exists (select 1 from ${executions} where ${executions.sessionId} = ${sessions.id})
    limit ${given("rows")})`);
