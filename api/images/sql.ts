import {
  and,
  asc,
  desc,
  eq,
  exists,
  gt,
  inArray,
  isNotNull,
  lt,
  lte,
  max,
  ne,
  notExists,
  notInArray,
  or,
  sql,
  type SQL,
  type SQLWrapper,
} from "drizzle-orm";
import { concatBytes } from "../../shared/bytes.ts";
import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { buildStatuses } from "../../shared/wire/job-types.ts";
import type { BuildReport } from "../../shared/wire/leases.ts";
import { limits } from "../../shared/wire/limits.ts";
import { takesWork } from "../agents/agents.ts";
import type { Config } from "../../shared/config/config.ts";
import { type BuiltImage, type OwnRow, withOwnTypes } from "../jobs/environment.ts";
import { type LeaseTerms, randomUuid } from "../jobs/lease.ts";
import { recorded, type Recorded } from "../jobs/output.ts";
import { isLeased, queuedAgain } from "../jobs/rules.ts";
import {
  type Database,
  equalsOrBothNull,
  insertWhere,
  toStatement,
  transact,
} from "../store/database.ts";
import {
  agents,
  buildLogs,
  builds,
  executions,
  isInLine,
  isQueuedSession,
  jobTypes,
  removals,
  sessions,
} from "../store/schema.ts";
import { given, listed, query, statement } from "../store/statement.ts";
import { type AnyDb, batch, keptTenantRows, perTenant, type TenantDb } from "../store/tenant.ts";
import { type Actor, audited } from "../tenants/sql.ts";

/** The columns of a build on which its transitions depend. Times are epoch milliseconds. */
export interface BuildState {
  status: (typeof buildStatuses)[number];
  attempt: number;
  leaseId: string | null;
  agentId: string | null;
  leaseExpiresAt: number | null;
  startedAt: number | null;
  endedAt: number | null;
  digest: string | null;
  pythonVersion: string | null;
  archiveSha256: string | null;
  archiveBytes: number | null;
  manifestDigest: string | null;
  error: ExecutionError | null;
}

export type BuildEvent =
  | { kind: "finish"; leaseId: string; report: BuildReport }
  /** A transient failure of the engine. */
  | { kind: "release"; leaseId: string; error: ExecutionError }
  | { kind: "expire" }
  /** The agent has ended in order without building it. */
  | { kind: "leave"; leaseId: string }
  /** The agent's process has died. */
  | { kind: "crash"; leaseId: string }
  /** No agent can build it, and its client gets an error that says so. */
  | { kind: "withdraw"; error: ExecutionError };

type BuildRefusal = "finished" | "not_queued" | "lease_lost" | "not_due";
type BuildTransition =
  | { ok: true; change: Partial<BuildState> }
  | { ok: false; refusal: BuildRefusal };

const lostTwice: ExecutionError = {
  type: "internal_error",
  message: `The agent was lost while it built, ${limits.maxAttempts} times. Its own log may say why: a build that needs more memory or disk than its host has is one reason.`,
  phase: "startup",
};

/** Applies an event to a build at a time (epoch ms): returns the columns that change, or a refusal. */
export function buildTransition(
  state: BuildState,
  event: BuildEvent,
  now: number,
): BuildTransition {
  if (state.status === "built" || state.status === "failed") return refuse("finished");
  switch (event.kind) {
    case "withdraw":
      return state.status === "queued" ? fail(event.error, now) : refuse("not_queued");
    case "expire":
      if (state.status !== "running" || isLeased(state, now)) return refuse("not_due");
      return tryAgain(state, lostTwice, now);
    case "leave":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return change({ ...queuedAgain, ...noArchive, attempt: state.attempt - 1 });
    case "crash":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return tryAgain(state, lostTwice, now);
    case "release":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return tryAgain(state, event.error, now);
    case "finish":
      if (!holds(state, event, now)) return refuse("lease_lost");
      return finish(event.report, now);
  }
}

function holds(state: BuildState, { leaseId }: { leaseId: string }, now: number): boolean {
  return state.status === "running" && state.leaseId === leaseId && isLeased(state, now);
}

function finish(report: BuildReport, now: number): BuildTransition {
  if (report.status === "failed") return fail(report.error, now);
  const { status, digest } = report;
  const { python_version: pythonVersion, manifest_digest: manifestDigest } = report;
  const made = { digest, pythonVersion, manifestDigest };
  return change({ status, ...made, endedAt: now, leaseExpiresAt: null });
}

function tryAgain({ attempt }: BuildState, error: ExecutionError, now: number): BuildTransition {
  if (attempt >= limits.maxAttempts) return fail(error, now);
  return change({ ...queuedAgain, ...noArchive });
}

function fail(error: ExecutionError, now: number): BuildTransition {
  return change({ status: "failed", error, endedAt: now, leaseExpiresAt: null, ...noArchive });
}

const noArchive = { archiveSha256: null, archiveBytes: null };

function change(columns: Partial<BuildState>): BuildTransition {
  return { ok: true, change: columns };
}

function refuse(refusal: BuildRefusal): BuildTransition {
  return { ok: false, refusal };
}

export type BuildRow = typeof builds.$inferSelect;
export type NewBuild = typeof builds.$inferInsert;
/** A job type, and what its image is made of. */
type BuildOf = Pick<NewBuild, "jobType" | "spec">;

/** Literal text, since SQLite uses a partial index only if the query has its condition. */
const isOpen = sql`${builds.status} IN ('queued', 'running')`;
const isBuilt = sql`${builds.status} = 'built'`;

/** Whether a build runs under this lease. */
const isLeasedBuild = (leaseId: string, now: number): SQL | undefined =>
  and(eq(builds.leaseId, leaseId), eq(builds.status, "running"), gt(builds.leaseExpiresAt, now));

/**
 * Queues a build, unless an equal one is queued or running. Returns the id of the new or the existing one.
 *
 * @param after With this, queues it only if its specification has no build with a greater `seq`.
 */
export async function requestBuild(
  db: Database,
  build: NewBuild,
  by: Actor,
  after?: number,
): Promise<string> {
  const { jobType, tag, spec } = build;
  const newer = and(isOf(build), gt(builds.seq, after ?? 0));
  const isWanted =
    after === undefined ? undefined : notExists(query.select().from(builds).where(newer));
  const [, , found] = await batch(db, [
    toStatement(insertWhere(builds, build, isWanted).append(sql` on conflict do nothing`)),
    audited(by, "build.request", jobType, { tag }),
    openEqual({ jobType, tag, spec }),
  ]);
  return found?.rows[0]?.[0] as string;
}

/** Builds of a specification, without those that nobody could take. */
const isOf = ({ jobType, spec }: BuildOf): SQL | undefined =>
  and(
    eq(builds.jobType, jobType),
    eq(builds.spec, spec),
    sql`(${builds.error} is null or ${builds.error} ->> 'type' <> 'service_unavailable')`,
  );

/** The last builds of a specification, newest first. */
export async function lastBuilds(db: Database, of: BuildOf): Promise<BuildRow[]> {
  return db.orm.select().from(builds).where(isOf(of)).orderBy(desc(builds.seq)).limit(10);
}

/** Whether processes with another configuration have, or are about to have, an image of the type after this build. */
export async function isServedElsewhere(
  db: Database,
  { jobType, spec, seq }: BuildRow,
): Promise<boolean> {
  const isNewer = and(eq(builds.status, "built"), gt(builds.seq, seq));
  const which = and(eq(builds.jobType, jobType), ne(builds.spec, spec), or(isOpen, isNewer));
  return (await findBuild(db, which)) !== undefined;
}

const isDue = lte(executions.availableAt, given("now"));
const isDueSession = and(isQueuedSession, gt(sessions.expiresAt, given("now")));
/** Whether a job or a session waits for the image of one of the types `unbuilt`. */
export const isImageAwaited = sql`iif(${given("unbuilt")} = '[]', 0, exists (select 1 from ${executions}
    where ${isInLine} and ${isDue} and ${executions.jobType} in ${listed("unbuilt")})
  or exists (select 1 from ${sessions} where ${isDueSession} and ${sessions.jobType} in ${listed("unbuilt")}))`;

/** Those of these job types for which a job or a session waits, with the correlation id of one that does. */
export async function awaitedTypes(
  db: Database,
  jobTypes: string[],
  now: number,
): Promise<{ jobType: string; correlationId: string }[]> {
  const { rows } = await db.client.execute(awaited({ jobTypes: JSON.stringify(jobTypes), now }));
  return rows.flatMap(({ 0: jobType, 1: correlationId }) =>
    correlationId === null
      ? []
      : [{ jobType: jobType as string, correlationId: correlationId as string }],
  );
}

const awaited = statement(sql`select wanted.value, coalesce(
    (select ${executions.correlationId} from ${executions}
      where ${isInLine} and ${isDue} and ${executions.jobType} = wanted.value limit 1),
    (select ${sessions.correlationId} from ${sessions}
      where ${isDueSession} and ${sessions.jobType} = wanted.value limit 1))
  from json_each(${given("jobTypes")}) as wanted`);

const openEqual = statement(
  query
    .select({ id: builds.id })
    .from(builds)
    .where(
      and(
        isOpen,
        eq(builds.jobType, given("jobType")),
        eq(builds.tag, given("tag")),
        eq(builds.spec, given("spec")),
      ),
    ),
);

/** The last of the builds that a condition selects. */
async function findBuild(db: Database, which: SQL | undefined): Promise<BuildRow | undefined> {
  const found = await db.orm.select().from(builds).where(which).orderBy(desc(builds.seq)).limit(1);
  return found[0];
}

export const findBuildById = (db: Database, id: string) => findBuild(db, eq(builds.id, id));
export const findBuildByLease = (db: Database, leaseId: string) =>
  findBuild(db, eq(builds.leaseId, leaseId));
export const lastBuild = (db: Database, jobType: string) =>
  findBuild(db, eq(builds.jobType, jobType));
/** The last build of the same job type that ended before this one. */
export const buildBefore = (db: Database, { jobType, seq }: BuildRow) =>
  findBuild(db, and(eq(builds.jobType, jobType), lt(builds.seq, seq), isNotNull(builds.endedAt)));

/** Builds that are queued or running, oldest first. */
export const openBuilds = keptTenantRows(() =>
  query.select().from(builds).where(isOpen).orderBy(builds.seq),
);

/** The last image built for each job type and specification. */
export async function builtImages(db: AnyDb): Promise<BuiltImage[]> {
  const rows = await lastBuilt(db);
  return rows.flatMap(({ digest, pythonVersion, ...row }) =>
    digest === null || pythonVersion === null ? [] : [{ ...row, digest, pythonVersion }],
  );
}

const lastBuilt = keptTenantRows(() =>
  query
    .select()
    .from(builds)
    .where(
      inArray(
        builds.seq,
        query
          .select({ seq: max(builds.seq) })
          .from(builds)
          .where(isBuilt)
          .groupBy(builds.jobType, builds.spec),
      ),
    ),
);

type AdvancedBuild =
  | { kind: "changed"; build: BuildRow }
  | { kind: "refused"; refusal: BuildRefusal; build: BuildRow }
  | { kind: "not_found" };

type Target = { id: string } | { leaseId: string };

/** Applies an event to one build, as `advance` does to an execution. */
export async function advanceBuild(
  db: Database,
  target: Target,
  event: BuildEvent,
  now: number,
  { reportHash, statements = [] }: { reportHash?: string; statements?: SQLWrapper[] } = {},
): Promise<AdvancedBuild> {
  const isTarget = "id" in target ? eq(builds.id, target.id) : eq(builds.leaseId, target.leaseId);
  for (;;) {
    const build = await findBuild(db, isTarget);
    if (!build) return { kind: "not_found" };
    const result = buildTransition(build, event, now);
    if (!result.ok) return { kind: "refused", refusal: result.refusal, build };

    const change = { ...result.change, ...(reportHash !== undefined && { reportHash }) };
    const isUnchanged = and(
      eq(builds.id, build.id),
      eq(builds.status, build.status),
      eq(builds.attempt, build.attempt),
      equalsOrBothNull(builds.leaseId, build.leaseId),
      equalsOrBothNull(builds.leaseExpiresAt, build.leaseExpiresAt),
    );
    const [updated] = await transact(db, [
      db.orm.update(builds).set(change).where(isUnchanged),
      ...removalOfArchive(db, build, result.change, now),
      ...statements,
    ]);
    if (updated?.rowsAffected === 1) return { kind: "changed", build: { ...build, ...change } };
  }
}

/** Schedules the removal of what a failed lease has uploaded or is still uploading. */
function removalOfArchive(
  db: Database,
  { id, leaseId }: BuildRow,
  { status }: Partial<BuildState>,
  now: number,
): SQLWrapper[] {
  if (leaseId === null || status === "built") return [];
  const removal = { prefix: `${id}/${leaseId}`, dueAt: now + hourMs };
  // The build may have ended before this, even with success.
  const holds = db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(and(eq(builds.leaseId, leaseId), sql`${builds.status} IN ('running', 'built')`));
  return [insertWhere(removals, removal, notExists(holds)).append(sql` on conflict do nothing`)];
}

const hourMs = 3_600_000;

/** Ends a build with the report of its lease. Notes at once that its agent has the image. */
export async function finishBuild(
  db: Database,
  leaseId: string,
  report: BuildReport,
  reportHash: string,
  now: number,
): Promise<AdvancedBuild> {
  const event = { kind: "finish", leaseId, report } as const;
  const statements = report.status === "built" ? [noteImage(db, leaseId, report.digest)] : [];
  return advanceBuild(db, { leaseId }, event, now, { reportHash, statements });
}

function noteImage(db: Database, leaseId: string, digest: string): SQLWrapper {
  const endedByThis = db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(
      and(eq(builds.leaseId, leaseId), eq(builds.digest, digest), eq(builds.agentId, agents.id)),
    );
  return db.orm
    .update(agents)
    .set({ images: sql`json_insert(${agents.images}, '$[#]', ${digest})` })
    .where(exists(endedByThis));
}

const isRunning = and(isOpen, eq(builds.status, "running"));
const isHeldBy = ({ agentId, now }: LeaseTerms) =>
  and(isRunning, eq(builds.agentId, agentId), gt(builds.leaseExpiresAt, now));

const tenantOf = sql.raw(`spec ->> 'tenant'`);
/** How many open builds come before a build: those of its job type, and those of the tenant that has made the type. */
const nthOfItsOwn = sql`(select count(*) from ${builds} as earlier
  where earlier.status in ('queued', 'running') and earlier.seq < ${builds.seq}
    and (earlier.job_type = ${builds.jobType} or earlier.${tenantOf} = ${builds}.${tenantOf}))`;

/**
 * Leases up to `count` queued builds of these specifications in one guarded statement: the oldest of each type first, so
 * that many versions of one, or types of one tenant, do not keep jobs of another waiting. Others are left to processes that know them.
 */
export async function claimBuilds(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  count: number,
  of: BuildOf[],
): Promise<BuildRow[]> {
  const isQueued = and(isOpen, eq(builds.status, "queued"));
  const isKnown = inArray(
    sql`${builds.jobType} || ${builds.spec}`,
    of.map(({ jobType, spec }) => jobType + spec),
  );
  const next = db.orm
    .select({ seq: builds.seq })
    .from(builds)
    .where(and(isQueued, isKnown))
    .orderBy(nthOfItsOwn, builds.seq)
    .limit(count);
  return db.orm
    .update(builds)
    .set({
      status: "running",
      attempt: sql`${builds.attempt} + 1`,
      leaseId: randomUuid,
      agentId,
      leaseExpiresAt: expiresAt,
      startedAt: now,
      step: null,
    })
    .where(and(isQueued, takesWork(agentId), inArray(builds.seq, next)))
    .returning();
}

/** Leases of this agent that it does not know, because the reply was lost. */
export async function undeliveredBuilds(
  db: Database,
  terms: LeaseTerms,
  held: string[],
): Promise<BuildRow[]> {
  return db.orm
    .update(builds)
    .set({ leaseExpiresAt: terms.expiresAt })
    .where(and(isHeldBy(terms), notInArray(builds.leaseId, held)))
    .returning();
}

/** Renews the listed leases that the agent still holds, and returns them. */
export async function renewBuilds(
  db: Database,
  terms: LeaseTerms,
  leaseIds: string[],
): Promise<string[]> {
  if (leaseIds.length === 0) return [];
  const renewed = await db.orm
    .update(builds)
    .set({ leaseExpiresAt: terms.expiresAt })
    .where(and(isHeldBy(terms), inArray(builds.leaseId, leaseIds)))
    .returning({ leaseId: builds.leaseId });
  return renewed.flatMap(({ leaseId }) => leaseId ?? []);
}

/** Ends or requeues every build whose lease has expired, and returns their new state. */
export async function expireBuilds(db: Database, now: number): Promise<BuildRow[]> {
  const due = await db.orm
    .select({ id: builds.id })
    .from(builds)
    .where(and(isRunning, lte(builds.leaseExpiresAt, now)));
  const expired: BuildRow[] = [];
  for (const { id } of due) {
    const result = await advanceBuild(db, { id }, { kind: "expire" }, now);
    if (result.kind === "changed") expired.push(result.build);
  }
  return expired;
}

/** Stores a chunk of a build's log and the step that runs, if its lease still holds. */
export async function recordBuildLog(
  db: Database,
  chunk: typeof buildLogs.$inferInsert,
  now: number,
  step?: number,
): Promise<Recorded> {
  if (step !== undefined) {
    const which = isLeasedBuild(chunk.leaseId, now);
    const noted = await db.orm
      .update(builds)
      .set({ step })
      .where(which)
      .returning({ id: builds.id });
    if (chunk.data.length === 0) return noted.length === 1 ? "recorded" : "lease_lost";
  }
  const holds = exists(
    query.select({ id: builds.id }).from(builds).where(isLeasedBuild(chunk.leaseId, now)),
  );
  const known = db.orm
    .select({ isSame: eq(buildLogs.data, chunk.data) })
    .from(buildLogs)
    .where(
      and(
        eq(buildLogs.buildId, chunk.buildId),
        eq(buildLogs.leaseId, chunk.leaseId),
        eq(buildLogs.offset, chunk.offset),
      ),
    );
  const [, present] = await transact(db, [
    insertWhere(buildLogs, chunk, holds).append(sql` on conflict do nothing`),
    known,
  ]);
  return recorded(present);
}

/** The log of a build's last lease. */
export async function readBuildLog(
  db: Database,
  { id, leaseId }: Pick<BuildRow, "id" | "leaseId">,
): Promise<Uint8Array> {
  if (leaseId === null) return new Uint8Array();
  const chunks = await db.orm
    .select({ data: buildLogs.data })
    .from(buildLogs)
    .where(and(eq(buildLogs.buildId, id), eq(buildLogs.leaseId, leaseId)))
    .orderBy(asc(buildLogs.offset));
  return concatBytes(chunks.map(({ data }) => data));
}

/** Records the archive that a lease has uploaded; false if the lease no longer holds. */
export async function recordArchive(
  db: Database,
  leaseId: string,
  { sha256, sizeBytes }: { sizeBytes: number; sha256: string },
  now: number,
): Promise<boolean> {
  const noted = await db.orm
    .update(builds)
    .set({ archiveSha256: sha256, archiveBytes: sizeBytes })
    .where(isLeasedBuild(leaseId, now))
    .returning({ id: builds.id });
  return noted.length === 1;
}

/** The last build of this image whose image is in the artifact store or a registry. */
export const findImage = (db: Database, digest: string): Promise<BuildRow | undefined> =>
  findBuild(
    db,
    and(
      sql`${builds.status} = 'built'`,
      eq(builds.digest, digest),
      sql`(${builds.archiveSha256} IS NOT NULL OR ${builds.manifestDigest} IS NOT NULL)`,
    ),
  );

/** Builds whose archive is stored. */
export async function archivedBuilds(db: Database): Promise<BuildRow[]> {
  return db.orm.select().from(builds).where(isNotNull(builds.archiveSha256));
}

/** Removes the archive from a build; its bytes are removed after a time (epoch ms). */
export async function dropArchive(db: Database, id: string, bytesDueAt: number): Promise<void> {
  await transact(db, [
    db.orm.insert(removals).values({ prefix: id, dueAt: bytesDueAt }).onConflictDoNothing(),
    db.orm.update(builds).set({ archiveSha256: null, archiveBytes: null }).where(eq(builds.id, id)),
  ]);
}

const ownTypes = keptTenantRows((own) =>
  query.select().from(jobTypes).where(own(jobTypes)).orderBy(jobTypes.name),
);

/**
 * The configuration with the job types that tenants have made: for a client those of its tenant alone. No older than
 * the database, because each use of a job type asks for it.
 */
export async function catalogue({ config, db }: { config: Config; db: AnyDb }): Promise<Config> {
  return config.tenant_job_types === 0 ? config : withOwnTypes(config, await ownTypes(db));
}

/** Makes or changes a job type of the tenant; false if it would have more than `most`. */
export async function putJobType(
  db: TenantDb,
  { name, definition }: Omit<OwnRow, "tenant">,
  most: number,
  by: Actor,
): Promise<boolean> {
  const values = { name, definition: JSON.stringify(definition), now: by.at, most };
  const [written] = await batch(db, [upsertType(values), audited(by, "job_type.put", name)]);
  return written!.rowsAffected === 1;
}

const upsertType = perTenant(
  (own) => sql`
  insert into ${jobTypes} (name, tenant, definition, changed_at)
  select ${given("name")}, ${own.tenant}, ${given("definition")}, ${given("now")}
  where exists (select 1 from ${jobTypes} where ${jobTypes.name} = ${given("name")} and ${own(jobTypes)})
    or (select count(*) from ${jobTypes} where ${own(jobTypes)}) < ${given("most")}
  on conflict (name) do update set definition = excluded.definition, changed_at = excluded.changed_at`,
);

/** Removes a job type of the tenant; false if it has none of this name. */
export async function dropJobType(db: TenantDb, name: string, by: Actor): Promise<boolean> {
  const writes = [dropType({ name }), audited(by, "job_type.delete", name)];
  return (await batch(db, writes))[0]!.rowsAffected === 1;
}

const dropType = perTenant(
  (own) =>
    sql`delete from ${jobTypes} where ${jobTypes.name} = ${given("name")} and ${own(jobTypes)}`,
);
