import { and, eq, exists, gt, sql } from "drizzle-orm";
import { batch, insertWhere, type Database } from "./database.ts";
import type { ArtifactRow } from "./read.ts";
import { artifacts, executions, isRunning, logChunks } from "./schema.ts";

export type Recorded = "recorded" | "lease_lost";

/** Records an uploaded file, if its lease still holds at this instant. */
export async function recordArtifact(
  db: Database,
  artifact: ArtifactRow,
  now: number,
): Promise<Recorded> {
  const [inserted] = await batch(db, [
    insertWhere(artifacts, artifact, leaseHolds(db, artifact.leaseId, now)),
  ]);
  return inserted?.rowsAffected === 1 ? "recorded" : "lease_lost";
}

export async function findUpload(
  db: Database,
  { executionId, leaseId, name }: Pick<ArtifactRow, "executionId" | "leaseId" | "name">,
): Promise<ArtifactRow | undefined> {
  const [row] = await db.orm
    .select()
    .from(artifacts)
    .where(
      and(
        eq(artifacts.executionId, executionId),
        eq(artifacts.leaseId, leaseId),
        eq(artifacts.name, name),
      ),
    );
  return row;
}

const onRepeat = sql` on conflict do nothing`;

type LogChunkRow = typeof logChunks.$inferInsert;

/** Keeps a piece of a running execution's output, if its lease still holds; a repeat is ignored. */
export async function recordLogChunk(
  db: Database,
  chunk: LogChunkRow,
  now: number,
): Promise<Recorded> {
  const holds = leaseHolds(db, chunk.leaseId, now);
  const known = db.orm
    .select({ offset: logChunks.offset })
    .from(logChunks)
    .where(
      and(
        eq(logChunks.executionId, chunk.executionId),
        eq(logChunks.leaseId, chunk.leaseId),
        eq(logChunks.stream, chunk.stream),
        eq(logChunks.offset, chunk.offset),
      ),
    );
  const [, present] = await batch(db, [
    insertWhere(logChunks, chunk, holds).append(onRepeat),
    known,
  ]);
  return present?.rows.length ? "recorded" : "lease_lost";
}

function leaseHolds(db: Database, leaseId: string, now: number) {
  return exists(
    db.orm
      .select({ id: executions.id })
      .from(executions)
      .where(and(eq(executions.leaseId, leaseId), isRunning, gt(executions.leaseExpiresAt, now))),
  );
}
