import { and, asc, eq, exists, sql } from "drizzle-orm";
import { concatBytes } from "../../../shared/bytes.ts";
import { type BuildRow, isLeased } from "./builds.ts";
import { transact, insertWhere, type Database } from "../database.ts";
import { buildLogs, builds } from "../schema.ts";
import { recorded, type Recorded } from "../output/artifacts.ts";
import { query } from "../statement.ts";

/** Stores a chunk of a build's log if its lease still holds. */
export async function recordBuildLog(
  db: Database,
  chunk: typeof buildLogs.$inferInsert,
  now: number,
): Promise<Recorded> {
  const holds = exists(
    query.select({ id: builds.id }).from(builds).where(isLeased(chunk.leaseId, now)),
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
