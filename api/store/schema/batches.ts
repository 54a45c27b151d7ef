import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { bytes, tenant } from "./columns.ts";

/** One row per batch of submissions. Its members name it in `executions.batch_id`. */
export const batches = sqliteTable(
  "batches",
  {
    id: text("id").primaryKey(),
    tenant: tenant(),
    keyId: text("key_id"),
    idempotencyKey: text("idempotency_key"),
    submissionHash: text("submission_hash").notNull(),
    /** The answer to its submission, for a repeat. */
    outcome: bytes("outcome").notNull(),
    /** Epoch ms. */
    createdAt: integer("created_at").notNull(),
  },
  (t) => [
    uniqueIndex("batches_idempotency_key")
      .on(t.tenant, t.idempotencyKey)
      .where(sql`${t.idempotencyKey} IS NOT NULL`),
    index("batches_created_at").on(t.createdAt),
  ],
);
