import type { ResultSet } from "@libsql/client/web";
import { and, asc, eq, exists, gt, lte, type Placeholder, sql, type SQL } from "drizzle-orm";
import { transact, insertWhere, type Database } from "../database.ts";
import { artifacts, executions, isRunning } from "../schema.ts";
import { listed, query } from "../statement.ts";
import { type AnyDb, type Owner, tenantRow, tenantRows } from "../tenant.ts";

export type ArtifactRow = typeof artifacts.$inferSelect;

/**
 * `recorded` also stands for a repeated post, `conflict` for a post with other content in the same
 * place, and `too_large` for a post above the limit of its lease.
 */
export type Recorded = "recorded" | "conflict" | "too_large" | "lease_lost";

/** Records an uploaded file if its lease still holds and has room for it. */
export async function recordArtifact(
  db: Database,
  artifact: ArtifactRow,
  maxBytes: number,
  now: number,
): Promise<Recorded> {
  const holds = leaseHolds(artifact.leaseId, now);
  const hasRoom = lte(sql`${uploadedBytes(db, artifact)} + ${artifact.sizeBytes}`, maxBytes);
  const [, present, held] = await transact(db, [
    insertWhere(artifacts, artifact, and(holds, hasRoom)).append(onRepeat),
    db.orm
      .select({ isSame: eq(artifacts.sha256, artifact.sha256) })
      .from(artifacts)
      .where(uploadOf(artifact)),
    sql`select ${holds}`,
  ]);
  return recorded(present, held);
}

/** Bytes of the files that a lease has uploaded. */
function uploadedBytes(db: Database, { executionId, leaseId }: Omit<Upload, "name">) {
  return db.orm
    .select({ bytes: sql<number>`coalesce(sum(${artifacts.sizeBytes}), 0)` })
    .from(artifacts)
    .where(and(eq(artifacts.executionId, executionId), eq(artifacts.leaseId, leaseId)));
}

/** Whether a lease has room for a file; checked before its bytes are read. */
export async function hasRoom(
  db: Database,
  lease: Omit<Upload, "name">,
  sizeBytes: number,
  maxBytes: number,
): Promise<boolean> {
  const [uploaded] = await uploadedBytes(db, lease);
  return (uploaded?.bytes ?? 0) + sizeBytes <= maxBytes;
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

/** @param held Whether the lease still holds; given if its posts have a limit. */
export function recorded(present: ResultSet | undefined, held?: ResultSet): Recorded {
  const row = present?.rows[0];
  if (!row) return held?.rows[0]?.[0] === 1 ? "too_large" : "lease_lost";
  return row[0] === 1 ? "recorded" : "conflict";
}

/** Whether the lease of a running execution holds. */
export function leaseHolds(leaseId: string | Placeholder, now: number | Placeholder) {
  return exists(
    query
      .select({ id: executions.id })
      .from(executions)
      .where(and(eq(executions.leaseId, leaseId), isRunning, gt(executions.leaseExpiresAt, now))),
  );
}

/** The artifacts of executions, by name. */
export async function listArtifacts(db: AnyDb, ids: string[]): Promise<ArtifactRow[]> {
  return visibleArtifacts(db, { ids: JSON.stringify(ids) });
}

const visibleArtifacts = tenantRows((own) =>
  query
    .select()
    .from(artifacts)
    .where(visible(own, sql`${artifacts.executionId} in ${listed("ids")}`))
    .orderBy(asc(artifacts.name)),
);

export async function findArtifact(
  db: AnyDb,
  executionId: string,
  name: string,
): Promise<ArtifactRow | undefined> {
  return artifactByName(db, { executionId, name });
}

const artifactByName = tenantRow((own) =>
  query
    .select()
    .from(artifacts)
    .where(
      visible(
        own,
        and(
          eq(artifacts.executionId, sql.placeholder("executionId")),
          eq(artifacts.name, sql.placeholder("name")),
        ),
      ),
    ),
);

/** Only the artifacts of an accepted result are shown, not those of a lost lease. */
function visible(own: Owner, match: SQL | undefined): SQL | undefined {
  return and(
    match,
    own(artifacts),
    sql`exists (select 1 from ${executions} where ${executions.id} = ${artifacts.executionId} and ${own(executions)}
      and ${executions.leaseId} = ${artifacts.leaseId} and ${executions.resultHash} is not null)`,
  );
}
