import type { ResultSet } from "@libsql/client/web";
import { and, eq, exists, gt, sql, type SQL } from "drizzle-orm";
import { batch, insertWhere, type Database } from "../database.ts";
import type { ArtifactRow } from "./read.ts";
import { artifacts, executions, isRunning, logChunks } from "../schema.ts";

/** A repeat of what was recorded is recorded; another content in its place is a conflict. */
export type Recorded = "recorded" | "conflict" | "lease_lost";

/** Records an uploaded file, if its lease still holds at this instant. */
export async function recordArtifact(
  db: Database,
  artifact: ArtifactRow,
  now: number,
): Promise<Recorded> {
  const [, present] = await batch(db, [
    insertWhere(artifacts, artifact, leaseHolds(db, artifact.leaseId, now)).append(onRepeat),
    db.orm
      .select({ isSame: eq(artifacts.sha256, artifact.sha256) })
      .from(artifacts)
      .where(uploadOf(artifact)),
  ]);
  return recorded(present);
}

type Upload = Pick<ArtifactRow, "executionId" | "leaseId" | "name">;

export async function findUpload(db: Database, upload: Upload): Promise<ArtifactRow | undefined> {
  const [row] = await db.orm.select().from(artifacts).where(uploadOf(upload));
  return row;
}

function uploadOf({ executionId, leaseId, name }: Upload): SQL | undefined {
  return and(
    eq(artifacts.executionId, executionId),
    eq(artifacts.leaseId, leaseId),
    eq(artifacts.name, name),
  );
}

const onRepeat = sql` on conflict do nothing`;

type LogChunkRow = typeof logChunks.$inferInsert;

/** Keeps a piece of a running execution's output, if its lease still holds. */
export async function recordLogChunk(
  db: Database,
  chunk: LogChunkRow,
  now: number,
): Promise<Recorded> {
  const holds = leaseHolds(db, chunk.leaseId, now);
  const known = db.orm
    .select({ isSame: eq(logChunks.data, chunk.data) })
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
  return recorded(present);
}

export function recorded(present: ResultSet | undefined): Recorded {
  const row = present?.rows[0];
  if (!row) return "lease_lost";
  return row[0] === 1 ? "recorded" : "conflict";
}

function leaseHolds(db: Database, leaseId: string, now: number) {
  return exists(
    db.orm
      .select({ id: executions.id })
      .from(executions)
      .where(and(eq(executions.leaseId, leaseId), isRunning, gt(executions.leaseExpiresAt, now))),
  );
}
