import { sql } from "drizzle-orm";
import {
  check,
  index,
  integer,
  primaryKey,
  sqliteTable,
  text,
  uniqueIndex,
} from "drizzle-orm/sqlite-core";
import { buildStatuses } from "../../../shared/wire/build.ts";
import { type ExecutionError } from "../../../shared/wire/errors.ts";
import { bytes, inList } from "./columns.ts";

/** One row per build of a job type's image. Times are epoch milliseconds. */
export const builds = sqliteTable(
  "builds",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    id: text("id").notNull().unique(),
    jobType: text("job_type").notNull(),
    /** The version tag, or "latest". */
    tag: text("tag").notNull(),
    /** What the image is made of, as canonical JSON. The build is used only if the job type's specification is equal. */
    spec: text("spec").notNull(),
    imageRef: text("image_ref").notNull(),
    status: text("status", { enum: buildStatuses }).notNull().default("queued"),
    correlationId: text("correlation_id").notNull(),

    attempt: integer("attempt").notNull().default(0),
    leaseId: text("lease_id"),
    agentId: text("agent_id"),
    leaseExpiresAt: integer("lease_expires_at"),

    createdAt: integer("created_at").notNull(),
    startedAt: integer("started_at"),
    endedAt: integer("ended_at"),

    digest: text("digest"),
    pythonVersion: text("python_version"),
    /** SHA-256 and size of its archive in the artifact store; null if there is none. */
    archiveSha256: text("archive_sha256"),
    archiveBytes: integer("archive_bytes"),
    /** Digest (`sha256:…`) that a registry gave the image's manifest. */
    manifestDigest: text("manifest_digest"),
    error: text("error", { mode: "json" }).$type<ExecutionError>(),
    /** SHA-256 of the report that ended the build, to recognise a repeat. */
    reportHash: text("report_hash"),
  },
  (t) => [
    /** Equal requests share one build. */
    uniqueIndex("builds_open")
      .on(t.jobType, t.tag, t.spec)
      .where(sql`${t.status} IN ('queued', 'running')`),
    index("builds_queue")
      .on(t.seq)
      .where(sql`${t.status} IN ('queued', 'running')`),
    uniqueIndex("builds_lease")
      .on(t.leaseId)
      .where(sql`${t.leaseId} IS NOT NULL`),
    index("builds_built")
      .on(t.jobType, t.spec, t.seq)
      .where(sql`${t.status} = 'built'`),
    index("builds_archived")
      .on(t.seq)
      .where(sql`${t.archiveSha256} IS NOT NULL`),
    check("build_status_known", sql`${t.status} IN (${inList(buildStatuses)})`),
    check(
      "build_lease_while_running",
      sql`(${t.status} = 'running') = (${t.leaseExpiresAt} IS NOT NULL)`,
    ),
    check(
      "build_lease_complete",
      sql`${t.leaseExpiresAt} IS NULL OR (${t.leaseId} IS NOT NULL AND ${t.agentId} IS NOT NULL AND ${t.startedAt} IS NOT NULL)`,
    ),
    check("build_ended", sql`(${t.status} IN ('built', 'failed')) = (${t.endedAt} IS NOT NULL)`),
    check("build_error_when_failed", sql`(${t.status} = 'failed') = (${t.error} IS NOT NULL)`),
    check(
      "build_digest_when_built",
      sql`(${t.status} = 'built') = (${t.digest} IS NOT NULL) AND (${t.status} = 'built') = (${t.pythonVersion} IS NOT NULL)`,
    ),
  ],
);

/** Output of a build, by lease. */
export const buildLogs = sqliteTable(
  "build_logs",
  {
    buildId: text("build_id")
      .notNull()
      .references(() => builds.id, { onDelete: "cascade" }),
    leaseId: text("lease_id").notNull(),
    offset: integer("offset").notNull(),
    data: bytes("data").notNull(),
  },
  (t) => [primaryKey({ columns: [t.buildId, t.leaseId, t.offset] })],
);
