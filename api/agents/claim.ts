import type { ResultSet } from "@libsql/client/web";
import { and, eq, isNotNull, lte, not, notExists, sql, type SQL } from "drizzle-orm";
import { decodeUtf8 } from "../../shared/bytes.ts";
import type { InputWay } from "../../shared/wire/files.ts";
import type { JobType } from "../../shared/wire/job-types.ts";
import type {
  CallFile,
  LeasedCall,
  LeasedJob,
  PollRequest,
  ReadyKind,
} from "../../shared/wire/leases.ts";
import type { Deps } from "../deps.ts";
import { catalogue } from "../images/sql.ts";
import {
  defaultJobType,
  digestOf,
  type Environment,
  imageOf,
  isFor,
  leasedTools,
  pinnedRef,
  type ProgramChoice,
  resolveJobType,
  resolveProgram,
  toLeasedJobType,
} from "../jobs/environment.ts";
import {
  advance,
  type Claimed,
  claimedColumns,
  decodeClaimed,
  type Leased,
  type LeaseTerms,
  newLease,
  undeliveredCalls,
  undeliveredLeases,
} from "../jobs/lease.ts";
import { readEnvironments } from "../jobs/read.ts";
import {
  type ExecutionRow,
  filesOf,
  type InputFileInfo,
  isAnyOfQueued,
  isAnyQueued,
  isKeptFrom,
  isLeasedRow,
  isShared,
  isTenantFull,
  jobsOfAgent,
  type LeasedRow,
  moveFronts,
  type SubmittedPayload,
} from "../jobs/sql.ts";
import { isFollowed, tellEnd, tellFollowers } from "../jobs/wait.ts";
import { findSessions, type SessionRow } from "../sessions/sql.ts";
import { type Database, transact } from "../store/database.ts";
import {
  agents,
  executions,
  isHeldSession,
  isInLine,
  isWaitingCall,
  sessions,
  tenants,
} from "../store/schema.ts";
import { given, listed, query, rowQuery, rowsQuery, statement } from "../store/statement.ts";
import { takesWork } from "./agents.ts";
import { findAgent, servingKinds } from "./fleet.ts";
import { accepts, isEquipped, isRunnable, mayRun, type Placed, waysOf } from "./placement.ts";

/** What may wait for an agent. Whoever takes it looks again, or takes it under a condition. */
export interface Todo {
  /** What it may run; nothing without a free slot. */
  offered: Offer[];
  /** A lease whose time is over, of anybody. */
  overdue: boolean;
  /** A lease of this agent that it does not know. */
  missed: boolean;
  /** A job of an offered type. */
  due: boolean;
  /** A call of a session that it holds. */
  calls: boolean;
  /** A session, or one that it is to start and does not know. */
  sessions: boolean;
  /** A job or a session for whose image no build is open. */
  images: boolean;
}

/** Leases what an agent can run now: the next calls of its sessions, and jobs for its free slots. */
export async function takeJobs(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  environments: Environment[],
  todo: Todo,
): Promise<LeasedJob[]> {
  const { db } = deps;
  const { sessions = [], leases: held } = request;
  // Calls need no slot.
  const taken = await Promise.all([
    todo.missed && sessions.length > 0 ? undeliveredCalls(db, lease, held) : [],
    todo.calls ? leaseCalls(db, { ...lease, sessionId: null }) : [],
    takeForSlots(deps, request, lease, environments, todo),
  ]);
  return describeJobs(deps, taken.flat());
}

/** Jobs only of types that the agent may run. */
async function takeForSlots(
  deps: Deps,
  request: PollRequest,
  lease: LeaseTerms,
  environments: Environment[],
  { offered, missed, due }: Todo,
): Promise<Claimed[]> {
  const { db } = deps;
  const { free_slots, leases: held } = request;
  if (free_slots === 0) return [];
  const known = environments.map(({ jobType }) => jobType.name);
  const undelivered = missed ? await undeliveredLeases(db, lease, held, free_slots, known) : [];
  const room = {
    ...roomOf(request),
    slots: free_slots - undelivered.length,
    gpus: request.gpus.free - (await leasedGpus(deps, undelivered)),
  };
  if (!due || room.slots === 0) return undelivered;
  return [...undelivered, ...(await claimAtOnce(db, lease, room, offered)).claimed];
}

const roomOf = ({ free_slots, gpus, agent }: PollRequest): Room => ({
  slots: free_slots,
  gpus: gpus.free,
  inputs: agent.accepts.inputs,
});

/** A client that sends one job after the other sends the next one sooner than this. */
const nextJobMs = 50;

/**
 * Leases what comes after an execution that an agent ends: after a call, the next one of its session; after a job, a job
 * for the free slot. If none waits, one may come at once: its client has just been told of the end of the other. Without
 * this, the agent would ask for it with a poll.
 *
 * @returns `claim` leases a job that waits, when the result is being stored; `jobs` are what was leased, or can be soon.
 */
export function nextAfter(
  deps: Deps,
  { agentId, sessionId, queued: before }: Pick<Leased, "agentId" | "sessionId" | "queued">,
  signal: AbortSignal,
) {
  const { db, notifier } = deps;
  if (agentId === null) return undefined;
  if (sessionId !== null) {
    const jobs = () => takeNextCall(deps, agentId, sessionId, signal);
    return { claim: () => {}, jobs, close: () => {} };
  }
  const wakes = notifier.subscribe(["job"]);
  let claiming: Promise<Claimed[]> | undefined;
  const claim = (): void => {
    if (before > 0) claiming = claimForSlot(deps, agentId);
    // If the result is refused, what was leased comes with the agent's next poll.
    claiming?.catch(() => {});
  };
  /** @param queued Jobs that wait once the result is stored. */
  const jobs = async (queued: number): Promise<LeasedJob[]> => {
    let claimed = (await claiming) ?? [];
    if (claimed.length === 0 && queued > 0) claimed = await claimForSlot(deps, agentId);
    if (claimed.length > 0) return describeJobs(deps, claimed);
    const { forJob } = await wakes.next(nextJobMs, signal);
    let isMore = true;
    try {
      if (forJob && !signal.aborted) claimed = await claimForSlot(deps, agentId);
      isMore = claimed.length === 0 || (await isAnyQueued(db));
    } finally {
      wakes.settle("job", isMore);
    }
    return describeJobs(deps, claimed);
  };
  return { claim, jobs, close: () => wakes.close() };
}

/** The agent's poll is not woken for a call that this waits for. */
async function takeNextCall(
  deps: Deps,
  agentId: string,
  sessionId: string,
  signal: AbortSignal,
): Promise<LeasedJob[]> {
  const { db, notifier } = deps;
  const claim = () => claimCalls(db, leaseTerms(deps, agentId), sessionId);
  const wakes = notifier.subscribe([`call:${sessionId}`, `session:${sessionId}`]);
  let isUsed = false;
  try {
    let calls = await claim();
    if (calls.length === 0) {
      await wakes.next(nextJobMs, signal);
      // A call that comes after this wakes the poll; one that came before is found here.
      wakes.close();
      if (!signal.aborted) calls = await claim();
    }
    isUsed = !signal.aborted;
    return await describeJobs(deps, calls);
  } finally {
    wakes.close();
    if (!isUsed) notifier.notify(`agent:${agentId}`);
  }
}

/**
 * Leases a job by the status that the agent last sent. It never needs a GPU: the GPU of the previous job is not free
 * until its container is removed.
 */
async function claimForSlot(deps: Deps, agentId: string): Promise<Claimed[]> {
  const { db } = deps;
  const [agent, environments] = await Promise.all([findAgent(db, agentId), readEnvironments(deps)]);
  if (!agent || agent.leftAt !== null || agent.drainingAt !== null) return [];
  const offered = await offers(deps, agent, environments);
  const room = { slots: 1, gpus: 0, inputs: agent.accepts.inputs };
  return (await claimAtOnce(db, leaseTerms(deps, agentId), room, offered)).claimed;
}

/** Leases the jobs that a poll was woken for. */
export async function takeWoken(
  deps: Deps,
  request: PollRequest,
  offered: Offer[],
): Promise<{ jobs: LeasedJob[]; isMoreQueued: boolean }> {
  // The job may not be stored yet, so nobody asks how many wait.
  if (offered.length === 0) return { jobs: [], isMoreQueued: true };
  const lease = leaseTerms(deps, request.agent.id);
  const { claimed, queued } = await claimAtOnce(deps.db, lease, roomOf(request), offered);
  const types = offered.map(({ jobType }) => jobType);
  // Jobs of other types do not wait for polls that are woken for these.
  const isMoreQueued = queued !== 0 && (await isAnyOfQueued(deps.db, types));
  return { jobs: await describeJobs(deps, claimed), isMoreQueued };
}

/** A lease that begins now. */
export function leaseTerms({ config, now }: Deps, agentId: string): LeaseTerms {
  const at = now();
  return { agentId, expiresAt: at + config.lease_ttl_s * 1000, now: at };
}

export function placedOf({ agent: { labels, accepts }, gpus, images }: PollRequest): Placed {
  return { labels, accepts, gpus, images };
}

async function leasedGpus(deps: Deps, leased: ExecutionRow[]): Promise<number> {
  if (leased.length === 0) return 0;
  const config = await catalogue(deps);
  return leased.reduce((sum, { jobType }) => sum + (resolveJobType(config, jobType)?.gpus ?? 0), 0);
}

/** What an agent may run. */
export async function offers(
  deps: Deps,
  agent: Placed,
  environments: Environment[],
): Promise<Offer[]> {
  const mayRunAll = environments.every(
    (environment) =>
      agent.images.includes(imageOf(environment)) &&
      accepts(agent, environment) &&
      isEquipped(agent, environment),
  );
  const serving = mayRunAll ? [] : await servingKinds(deps, environments);
  return environments
    .filter((environment) => mayRun(agent, environment, serving))
    .map(({ jobType: { name, gpus }, built }) => ({
      jobType: name,
      gpus,
      jobVersion: built?.tag ?? "latest",
      jobRef: built ? pinnedRef(name, built.digest) : null,
    }));
}

/** What an agent needs to run leased executions. Ends those that may not run any more. */
async function describeJobs(deps: Deps, executions: Claimed[]): Promise<LeasedJob[]> {
  if (executions.length === 0) return [];
  const sessionIds = executions.flatMap(({ sessionId }) => sessionId ?? []);
  const [files, sessions, config] = await Promise.all([
    filesOf(deps.db, executions),
    sessionIds.length === 0 ? [] : findSessions(deps.db, { ids: JSON.stringify(sessionIds) }),
    catalogue(deps),
  ]);
  for (const execution of executions) tellFollowers(deps, execution);
  const refused: [LeasedRow, string][] = [];
  const jobs = executions.flatMap((execution) => {
    const { payload } = execution;
    const jobType = resolveJobType(config, execution.jobType);
    const session = sessions.find(({ id }) => id === execution.sessionId);
    if (!isLeasedRow(execution)) return [];
    if (!jobType) {
      if (session) refused.push([execution, noJobType(execution)]);
      return [];
    }
    const program = payload.program && resolveProgram(payload.program, jobType);
    const refusal = whyNotAnyMore(execution, jobType, payload.program, program);
    if (refusal !== undefined) {
      refused.push([execution, refusal]);
      return [];
    }
    const own = files.filter(({ executionId }) => executionId === execution.id);
    return [
      {
        lease_id: execution.leaseId,
        execution_id: execution.id,
        attempt: execution.attempt,
        correlation_id: execution.correlationId,
        tenant: execution.tenant,
        job_type: toLeasedJobType(jobType),
        image: execution.jobRef === null ? jobType.base_image : digestOf(execution.jobRef),
        code: decodeUtf8(payload.code),
        input_json: decodeUtf8(payload.input),
        ...(payload.stdin && { stdin: decodeUtf8(payload.stdin) }),
        ...(payload.args && { args: payload.args }),
        ...(program && { program }),
        ...(execution.results !== null && { results: true }),
        ...(payload.tools && { tools: leasedTools(payload.tools, deps.config.max_timeout) }),
        ...(own.length > 0 && { files: own.map(toLeasedFile) }),
        ...(session && { call: toLeasedCall(execution, payload, session) }),
        requirements: deps.config.allow_runtime_requirements ? execution.requirements : [],
        timeout_s: execution.timeoutS,
        startup_timeout_s: execution.startupTimeoutS,
        traceparent: execution.traceparent,
        ...(isFollowed(execution, deps.now()) && { watch: true }),
        caps: {
          stream_bytes: deps.config.max_stdout_bytes,
          artifact_bytes: deps.config.max_artifact_bytes,
        },
      },
    ];
  });
  if (refused.length > 0) await endRefused(deps, refused);
  return jobs;
}

function toLeasedFile({ name, sizeBytes, sha256, toWork }: InputFileInfo): CallFile {
  return { name, size_bytes: sizeBytes, sha256, ...(toWork && { to: "work" }) };
}

function toLeasedCall(
  { call, context, kind }: ExecutionRow,
  { call: options }: SubmittedPayload,
  { leaseId, contexts }: SessionRow,
): LeasedCall {
  return {
    session_lease_id: leaseId!,
    number: call!,
    context: context!,
    contexts,
    restart: options?.restart ?? false,
    env: options?.env ?? {},
    fetch: options?.fetch ?? [],
    ...(kind === "files" && { only_fetches: true }),
  };
}

const noJobType = ({ jobType }: ExecutionRow): string =>
  `The job type ${jobType} is not configured any more: the configuration was changed while the session lived.`;

/** Why a job must not run that could when it was submitted. Without its language, its code would run as Python. */
function whyNotAnyMore(
  { tenant }: ExecutionRow,
  jobType: JobType,
  choice: ProgramChoice | null,
  program: LeasedJob["program"] | null,
): string | undefined {
  const what = !isFor(tenant, jobType)
    ? `is no longer open to tenant ${tenant}`
    : choice && !program
      ? `no longer has the language ${choice.language}`
      : undefined;
  if (what === undefined) return undefined;
  return `The job type ${jobType.name} ${what}: the configuration was changed while the job waited.`;
}

async function endRefused(deps: Deps, refused: [LeasedRow, string][]): Promise<void> {
  await Promise.all(
    refused.map(async ([{ leaseId }, message]) => {
      const error = { type: "config_error", message, phase: "startup" } as const;
      const end = { kind: "complete", leaseId, status: "failed", error, exitCode: null } as const;
      const ended = await advance(deps.db, { leaseId }, end, deps.now());
      if (ended.kind === "changed") tellEnd(deps, ended.execution);
    }),
  );
  // The slots are free for jobs behind these.
  deps.notifier.notify("job");
}

const RECENT_MS = 10 * 60_000;

/** Job types that a new agent should keep containers ready for. Other agents know them from their own jobs. */
export async function keepReady(
  { db, now }: Deps,
  { is_new, agent, gpus }: PollRequest,
  environments: Environment[],
): Promise<ReadyKind[]> {
  if (!is_new) return [];
  const possible = environments.filter(
    (one) => isRunnable(one) && isEquipped({ ...agent, gpus }, one) && accepts(agent, one),
  );
  const names = possible.map(({ jobType }) => jobType.name);
  const used = new Set(await jobTypesUsedSince(db, names, now() - RECENT_MS)).add(defaultJobType);
  return possible
    .filter(({ jobType }) => used.has(jobType.name))
    .map((one) => ({ job_type: toLeasedJobType(one.jobType), image: imageOf(one) }));
}

/** A job type whose jobs may be leased, and the values for their records. */
export interface Offer {
  jobType: string;
  jobVersion: string;
  /** Null if the agent will report it. */
  jobRef: string | null;
  /** GPUs that each of its jobs needs. */
  gpus: number;
}

/** Free slots and GPUs of an agent, and how it gives jobs their stdin, args and files, if it can. */
interface Room {
  slots: number;
  gpus: number;
  inputs?: InputWay | undefined;
}

/**
 * Leases queued executions of the offered job types in the order of their ranks, until the room is
 * used, and records what they run on. One guarded statement leases them all; where tenants share the slots or have
 * limits, each gets a statement of its own. An execution that needs more GPUs than are free reserves the free ones, so
 * that jobs behind it cannot take them and it gets enough.
 */
export async function claimNext(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  { slots, gpus, inputs }: Room,
  offers: Offer[],
): Promise<Claimed[]> {
  const jobTypes = JSON.stringify(offers.map(({ jobType }) => jobType));
  const values = { ways: waysOf(inputs).join(" "), agentId, expiresAt, now };
  const leased: Claimed[] = [];
  while (leased.length < slots && offers.length > 0) {
    const free = slots - leased.length;
    const due = await firstDue(db, { ...values, jobTypes, free });
    if (!due) break;
    const room = {
      slots: due.isBounded ? 1 : slots,
      gpus: leased.reduce((left, row) => left - offeredGpus(row, offers), gpus),
      offers: JSON.stringify(offers),
    };
    const given = { ...values, ...room, free };
    const statement = due.isBounded ? claimShared : claim;
    const [claimed] = await transact(db, [statement(given), move(given)]);
    leased.push(...inLine(claimed!));
    if (!due.isBounded || claimed!.rows.length === 0) break;
  }
  return leased;
}

/**
 * The same without a look first, for a caller who knows that a job waits or is being stored. Where tenants share the
 * agents or have limits, this claim leases nothing, and `claimNext` finds what may be leased.
 *
 * @returns `queued` is the number of jobs that wait then, if one was leased in one step.
 */
async function claimAtOnce(
  db: Database,
  lease: LeaseTerms,
  room: Room,
  offers: Offer[],
): Promise<{ claimed: Claimed[]; queued?: number }> {
  const { slots, gpus, inputs } = room;
  const values = { ...lease, slots, gpus, ways: waysOf(inputs).join(" ") };
  const given = { ...values, offers: JSON.stringify(offers) };
  const [leased, moved] = await transact(db, [claim(given), move(given)]);
  if (leased!.rows.length === 0) return { claimed: await claimNext(db, lease, room, offers) };
  return { claimed: inLine(leased!), queued: Number(moved!.rows[0]?.["queued"]) };
}

const inLine = ({ rows }: ResultSet): Claimed[] =>
  rows.map(decodeClaimed).sort((a, b) => a.rank - b.rank || a.seq - b.seq);

const offeredGpus = ({ jobType }: ExecutionRow, offers: Offer[]): number =>
  offers.find((offer) => offer.jobType === jobType)?.gpus ?? 0;

const { seq, rank, tenant, jobType, availableAt, startBy, attempt, inputs } = executions;
/** A job that was leased before may start late. */
const isInTime = sql`(${startBy} is null or ${startBy} > ${given("now")} or ${attempt} > 0)`;
const isKnown = sql`(${inputs} is null or instr(${given("ways")}, ${inputs}))`;
const isDue = and(isInLine, lte(availableAt, given("now")), isInTime, isKnown);

/** Whether any tenant has `max_running`, or tenants share the agents. This check takes a tenth of a claim's time. */
const isBounded = sql<number>`(exists (select 1 from ${tenants} where ${tenants.maxRunning} is not null) or ${isShared(sql`${given("now")}`)})`;
/** `iif`, so that `space` and `mine` are read only where tenants share the agents. */
const isKept = (tenant: SQL): SQL =>
  sql`iif(${isShared(sql`${given("now")}`)}, exists (with ${jobsOfAgent} select 1 where ${isKeptFrom(tenant)}), 0)`;

/** A job that an agent may run, which is not kept from it. */
export const isOffered = and(
  isDue,
  sql`${jobType} in ${listed("jobTypes")}`,
  not(isTenantFull(sql`${tenant}`)),
  not(isKept(sql`${tenant}`)),
);
/** Whether any job waits. This only reads, while a claim would take the write lock. */
const firstDue = rowQuery(
  query.select({ seq, isBounded }).from(executions).where(isOffered).limit(1),
);

/**
 * The first jobs of each offered type, as many as there are slots, without those of full tenants. The next
 * jobs to lease are among them. The cost does not depend on how many jobs of other types wait before them.
 */
const headsOf = (
  which: SQL,
): SQL => sql`select ${seq} as seq, ${rank} as rank, ${tenant} as tenant, offer.value ->> 'gpus' as gpus,
    offer.value ->> 'jobVersion' as version, offer.value ->> 'jobRef' as ref
  from json_each(${given("offers")}) as offer cross join ${executions}
  where ${seq} in (
    select waiting.seq from ${executions} as waiting
    where waiting.status = 'queued' and waiting.session_id is null
      and waiting.job_type = offer.value ->> 'jobType'
      and waiting.available_at <= ${given("now")}
      and (waiting.start_by is null or waiting.start_by > ${given("now")} or waiting.attempt > 0)
      and (waiting.inputs is null or instr(${given("ways")}, waiting.inputs)) ${which}
    order by waiting.rank, waiting.seq limit ${given("slots")})`;

const open = sql`and not ${isTenantFull(sql`waiting.tenant`)} and not ${isKeptFrom(sql`waiting.tenant`)}`;
/** The tenants at or above their share of the agent's slots. Each tenant that waits costs one look at the index. */
const share = sql`lines(tenant) as (
    select min(tenant) from ${executions} where ${isInLine}
    union all
    select (select min(tenant) from ${executions} where ${isInLine} and tenant > lines.tenant)
    from lines where lines.tenant is not null limit (select min(most, 1000) from space)),
  above as materialized (
    select tenant from mine where n >= (select max(1, most / (select count(*) from (
      select tenant from mine union select tenant from lines where tenant is not null))) from space))`;
const below = sql`${open} and waiting.tenant not in above`;

/**
 * The jobs to lease. `needed` is the number of GPUs that a job and all jobs before it need. With 3
 * slots and 2 free GPUs:
 *
 *     rank    type    gpus  needed
 *     1       train   1     1       leased
 *     2       big     2     3       waits; the one GPU left is reserved for it
 *     3       train   1     4       waits behind it
 *     4       plain   0     4       leased, because it needs no GPU
 */
const nextOf = (heads: SQL): SQL => sql`(select seq, version, ref from (
    select *, sum(gpus) over (order by rank, seq) as needed from (${heads}))
  where gpus = 0 or needed <= ${given("gpus")}
  order by rank, seq limit ${given("slots")}) as next`;
/** One job, because each job changes which tenant may have the next one. */
const nextShared = sql`(with recursive ${jobsOfAgent}, ${share}
  select seq, version, ref from (
    select *, sum(gpus) over (order by late, rank, seq) as needed from (
      select *, tenant in above as late from (
        select * from (${headsOf(below)}) union select * from (${headsOf(open)}))))
  where gpus = 0 or needed <= ${given("gpus")}
  order by late, rank, seq limit 1) as next`;

const move = statement(moveFronts);
const claimOf = (next: SQL, condition?: SQL) =>
  statement(
    query
      .update(executions)
      .set({
        status: "running",
        attempt: sql`${executions.attempt} + 1`,
        ...newLease,
        jobVersion: sql`next.version`,
        jobRef: sql`next.ref`,
      })
      .from(next)
      .where(and(isInLine, takesWork(given("agentId")), condition, eq(seq, sql`next.seq`)))
      .returning(claimedColumns),
  );
const claim = claimOf(nextOf(headsOf(sql``)), not(isBounded));
const claimShared = claimOf(nextShared);

/**
 * Leases the next call of each session that an agent holds and in which none runs, or of one session. Not only
 * agents that take new work get calls: one that drains serves the sessions it has.
 */
export async function claimCalls(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  sessionId: string | null = null,
): Promise<Claimed[]> {
  const values = { agentId, expiresAt, now, sessionId };
  // Reads first, because an update would take the write lock each time.
  return (await waiting(db, values)).length === 0 ? [] : leaseCalls(db, values);
}

async function leaseCalls(
  db: Database,
  values: LeaseTerms & { sessionId: string | null },
): Promise<Claimed[]> {
  return (await db.client.execute(leaseNextCalls({ ...values }))).rows.map(decodeClaimed);
}

const nextOfSessions = (which: SQL) => sql`(
  select (select min(c.seq) from ${executions} as c
      where c.session_id = ${sessions.id} and c.status = 'queued' and c.session_id is not null
        and (c.start_by is null or c.start_by > ${given("now")}))
  from ${sessions}
  where ${sessions.agentId} = ${given("agentId")} and ${isHeldSession} and ${sessions.status} = 'ready' and ${sessions.leaseExpiresAt} > ${given("now")}
    and ${sessions.expiresAt} > ${given("now")}
    and (${which} is null or ${sessions.id} = ${which})
    and not exists (select 1 from ${executions} as r
      where r.session_id = ${sessions.id} and r.status = 'running' and r.session_id is not null))`;
/** The next call of a session that an agent holds, or of each one. */
export const isNextOf = (which: SQL) =>
  and(isWaitingCall, sql`${executions.seq} in ${nextOfSessions(which)}`);
const isNext = isNextOf(sql`${given("sessionId")}`);

const waiting = rowsQuery(query.select({ seq: executions.seq }).from(executions).where(isNext));

const ofSession = (column: SQL): SQL =>
  sql`(select ${column} from ${sessions} where ${sessions.id} = ${executions.sessionId})`;
const hasLeft = query
  .select({ id: agents.id })
  .from(agents)
  .where(and(eq(agents.id, given("agentId")), isNotNull(agents.leftAt)));
const leaseNextCalls = statement(
  query
    .update(executions)
    .set({
      status: "running",
      attempt: 1,
      ...newLease,
      jobVersion: ofSession(sql`${sessions.jobVersion}`),
      jobRef: ofSession(sql`${sessions.jobRef}`),
    })
    .where(and(isNext, notExists(hasLeft)))
    .returning(claimedColumns),
);

/** Picks the job types whose latest execution was submitted at or after a time. */
export async function jobTypesUsedSince(
  db: Database,
  jobTypes: string[],
  since: number,
): Promise<string[]> {
  const { rows } = await db.client.execute(used({ jobTypes: JSON.stringify(jobTypes), since }));
  return rows.map((row) => row[0] as string);
}

// Of each tenant, because its index begins with the tenant.
const used = statement(sql`
  select wanted.value from json_each(${given("jobTypes")}) as wanted
  where exists (select 1 from ${tenants} as each cross join ${executions} as latest
    where latest.seq = (select max(${executions.seq}) from ${executions}
        where ${executions.tenant} = each.name and ${executions.jobType} = wanted.value)
      and latest.created_at >= ${given("since")})`);
