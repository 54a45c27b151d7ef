import { and, eq, isNotNull, sql } from "drizzle-orm";
import { type BuildRow, findBuild, isLeased } from "./builds.ts";
import { transact, type Database } from "../database.ts";
import { builds, removals } from "../schema.ts";

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
    .where(isLeased(leaseId, now))
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
