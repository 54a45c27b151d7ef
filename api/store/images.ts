import { and, desc, eq, getTableColumns, gt, isNotNull, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import type { Announced } from "../deps.ts";
import type { BuiltImage } from "../domain/environment.ts";
import type { BuildRow } from "./builds.ts";
import { batch, type Database } from "./database.ts";
import { builds, removals } from "./schema.ts";

/** Notes the archive of a build that its lease has brought; false where that holds no longer. */
export async function recordArchive(
  db: Database,
  leaseId: string,
  { sha256, sizeBytes }: Announced,
  now: number,
): Promise<boolean> {
  const noted = await db.orm
    .update(builds)
    .set({ archiveSha256: sha256, archiveBytes: sizeBytes })
    .where(
      and(
        eq(builds.leaseId, leaseId),
        sql`${builds.status} = 'running'`,
        gt(builds.leaseExpiresAt, now),
      ),
    )
    .returning({ id: builds.id });
  return noted.length === 1;
}

/** The last build that made this image, of those that can be got from somewhere. */
export async function findImage(db: Database, digest: string): Promise<BuildRow | undefined> {
  const [row] = await db.orm
    .select()
    .from(builds)
    .where(
      and(
        sql`${builds.status} = 'built'`,
        eq(builds.digest, digest),
        sql`(${builds.archiveSha256} IS NOT NULL OR ${builds.manifestDigest} IS NOT NULL)`,
      ),
    )
    .orderBy(desc(builds.seq))
    .limit(1);
  return row;
}

type Archived = BuiltImage & { id: string; endedAt: number | null; isReplaced: boolean };

/** Ended builds that have an archive; replaced by the next one for what the job type asks for. */
export async function archivedBuilds(db: Database): Promise<Archived[]> {
  const newer = alias(builds, "newer");
  const isReplaced = sql<number>`exists (select 1 from ${builds} as ${sql.identifier("newer")}
    where ${newer.jobType} = ${builds.jobType} and ${newer.spec} = ${builds.spec}
      and ${newer.status} = 'built' and ${newer.seq} > ${builds.seq})`;
  const rows = await db.orm
    .select({ ...getTableColumns(builds), isReplaced })
    .from(builds)
    .where(and(isNotNull(builds.archiveSha256), isNotNull(builds.endedAt)));
  return rows.map((row) => ({
    ...row,
    digest: row.digest ?? "",
    pythonVersion: row.pythonVersion ?? "",
    isReplaced: row.isReplaced === 1,
  }));
}

/** Forgets the archive of a build; its bytes fall due at a time (epoch ms). */
export async function dropArchive(db: Database, id: string, bytesDueAt: number): Promise<void> {
  await batch(db, [
    db.orm.insert(removals).values({ prefix: id, dueAt: bytesDueAt }).onConflictDoNothing(),
    db.orm.update(builds).set({ archiveSha256: null, archiveBytes: null }).where(eq(builds.id, id)),
  ]);
}
