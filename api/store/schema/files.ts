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
import { bytes, tenant } from "./columns.ts";
import { executions } from "./executions.ts";

/** Files that clients have uploaded. Times are epoch milliseconds. */
export const files = sqliteTable(
  "files",
  {
    id: text("id").primaryKey(),
    tenant: tenant(),
    name: text("name").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    sha256: text("sha256").notNull(),
    contentType: text("content_type").notNull(),
    createdAt: integer("created_at").notNull(),
    /** When it expires. It is then removed, unless an execution refers to it. */
    expiresAt: integer("expires_at").notNull(),
    /** The upload's idempotency key, if it has one. */
    uploadKey: text("upload_key"),
  },
  (t) => [
    index("files_tenant").on(t.tenant, t.id),
    index("files_expires_at").on(t.expiresAt),
    uniqueIndex("files_upload_key")
      .on(t.tenant, t.uploadKey)
      .where(sql`${t.uploadKey} IS NOT NULL`),
  ],
);

/**
 * One row, which triggers update: bytes of uploaded files that are stored, being stored or due for
 * removal.
 */
export const fileBytes = sqliteTable("file_bytes", {
  id: integer("id").primaryKey(),
  total: integer("total").notNull(),
});

/** The files of a submission, which its code finds under /input. */
export const inputFiles = sqliteTable(
  "input_files",
  {
    executionId: text("execution_id")
      .notNull()
      .references(() => executions.id, { onDelete: "cascade" }),
    name: text("name").notNull(),
    sizeBytes: integer("size_bytes").notNull(),
    sha256: text("sha256").notNull(),
    contentType: text("content_type").notNull(),
    /** Its bytes, if they came in the request; else they are stored under `storeKey`. */
    content: bytes("content"),
    storeKey: text("store_key"),
    /** Id of the uploaded file or execution that owns the bytes: the first part of `storeKey`. */
    owner: text("owner"),
    /** Of calls: it goes to /output, where the code may change it. */
    toWork: integer("to_work", { mode: "boolean" }).notNull().default(false),
  },
  (t) => [
    primaryKey({ columns: [t.executionId, t.name] }),
    index("input_files_owner")
      .on(t.owner)
      .where(sql`${t.owner} IS NOT NULL`),
    check("bytes_once", sql`(${t.content} IS NULL) <> (${t.storeKey} IS NULL)`),
    check("owner_of_stored", sql`(${t.owner} IS NULL) = (${t.storeKey} IS NULL)`),
  ],
);
