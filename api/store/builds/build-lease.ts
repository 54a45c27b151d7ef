import { and, eq, gt, inArray, lte, notInArray, sql } from "drizzle-orm";
import { advanceBuild } from "./advance-build.ts";
import { isOpen, type BuildRow } from "./builds.ts";
import type { Database } from "../database.ts";
import { takesWork } from "../agents/agents.ts";
import { randomUuid, type LeaseTerms } from "../jobs/lease.ts";
import { builds } from "../schema.ts";

const isRunning = and(isOpen, eq(builds.status, "running"));
const isHeldBy = ({ agentId, now }: LeaseTerms) =>
  and(isRunning, eq(builds.agentId, agentId), gt(builds.leaseExpiresAt, now));

/** Leases up to `count` queued builds of these job types, oldest first, in one guarded statement. */
export async function claimBuilds(
  db: Database,
  { agentId, expiresAt, now }: LeaseTerms,
  count: number,
  jobTypes: string[],
): Promise<BuildRow[]> {
  const isQueued = and(isOpen, eq(builds.status, "queued"));
  const next = db.orm
    .select({ seq: builds.seq })
    .from(builds)
    .where(and(isQueued, inArray(builds.jobType, jobTypes)))
    .orderBy(builds.seq)
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
