import { and, eq, exists, notExists, sql, type SQLWrapper } from "drizzle-orm";
import type { BuildReport } from "../../../shared/wire/agent/lease.ts";
import {
  buildTransition,
  type BuildEvent,
  type BuildRefusal,
  type BuildState,
} from "../../domain/build-transition.ts";
import { type BuildRow, findBuild } from "./builds.ts";
import { transact, insertWhere, equalsOrBothNull, type Database } from "../database.ts";
import { agents, builds, removals } from "../schema.ts";

export type AdvancedBuild =
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
