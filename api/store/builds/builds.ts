import { and, desc, eq, gt, inArray, max, sql, type SQL } from "drizzle-orm";
import type { BuiltImage } from "../../domain/environment.ts";
import { type Actor, audited } from "../audit.ts";
import { toStatement, type Database } from "../database.ts";
import { builds } from "../schema.ts";
import { query, statement } from "../statement.ts";
import { type AnyDb, batch, tenantRows } from "../tenant.ts";

export type BuildRow = typeof builds.$inferSelect;
export type NewBuild = typeof builds.$inferInsert;

/** Literal text, since SQLite uses a partial index only if the query has its condition. */
export const isOpen = sql`${builds.status} IN ('queued', 'running')`;
const isBuilt = sql`${builds.status} = 'built'`;

/** Whether a build runs under this lease. */
export const isLeased = (leaseId: string, now: number): SQL | undefined =>
  and(eq(builds.leaseId, leaseId), eq(builds.status, "running"), gt(builds.leaseExpiresAt, now));

/** Queues a build, unless an equal one is queued or running. Returns the id of the new or the existing one. */
export async function requestBuild(db: Database, build: NewBuild, by: Actor): Promise<string> {
  const { jobType, tag, spec } = build;
  const [, , found] = await batch(db, [
    toStatement(query.insert(builds).values(build).onConflictDoNothing()),
    audited(by, "build.request", jobType, { tag }),
    openEqual({ jobType, tag, spec }),
  ]);
  return found?.rows[0]?.[0] as string;
}

const openEqual = statement(
  query
    .select({ id: builds.id })
    .from(builds)
    .where(
      and(
        isOpen,
        eq(builds.jobType, sql.placeholder("jobType")),
        eq(builds.tag, sql.placeholder("tag")),
        eq(builds.spec, sql.placeholder("spec")),
      ),
    ),
);

/** The last of the builds that a condition selects. */
export async function findBuild(
  db: Database,
  which: SQL | undefined,
): Promise<BuildRow | undefined> {
  const found = await db.orm.select().from(builds).where(which).orderBy(desc(builds.seq)).limit(1);
  return found[0];
}

export const findBuildById = (db: Database, id: string) => findBuild(db, eq(builds.id, id));
export const findBuildByLease = (db: Database, leaseId: string) =>
  findBuild(db, eq(builds.leaseId, leaseId));
export const lastBuild = (db: Database, jobType: string) =>
  findBuild(db, eq(builds.jobType, jobType));

/** Builds that are queued or running, oldest first. */
export const openBuilds = tenantRows(() =>
  query.select().from(builds).where(isOpen).orderBy(builds.seq),
);

/** The last image built for each job type and specification. */
export async function builtImages(db: AnyDb): Promise<BuiltImage[]> {
  const rows = await lastBuilt(db);
  return rows.flatMap(({ digest, pythonVersion, ...row }) =>
    digest === null || pythonVersion === null ? [] : [{ ...row, digest, pythonVersion }],
  );
}

const lastBuilt = tenantRows(() =>
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

/** Whether an image was built for a job type. */
export async function isBuiltImage(
  db: Database,
  jobType: string,
  digest: string,
): Promise<boolean> {
  const which = and(isBuilt, eq(builds.jobType, jobType), eq(builds.digest, digest));
  return (await findBuild(db, which)) !== undefined;
}
