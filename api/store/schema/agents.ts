import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { type CircuitBreaker, type EngineHealth, type PoolKind } from "../../../shared/health.ts";
import { type Accepted } from "../../../shared/lease.ts";

/** Agent processes that have polled and not left. */
export const agents = sqliteTable("agents", {
  id: text("id").primaryKey(),
  name: text("name").notNull(),
  /** SHA-256 of the token that the agent presents. */
  tokenHash: text("token_hash").notNull(),
  version: text("version").notNull(),
  labels: text("labels", { mode: "json" }).$type<Record<string, string>>().notNull(),
  accepts: text("accepts", { mode: "json" })
    .$type<Accepted>()
    .notNull()
    .default({ job_types: null, builds: true }),
  slots: integer("slots").notNull(),
  warm: integer("warm").notNull(),
  pool: text("pool", { mode: "json" }).$type<PoolKind[]>().notNull().default([]),
  engine: text("engine", { mode: "json" }).$type<EngineHealth>().notNull(),
  breaker: text("breaker", { mode: "json" }).$type<CircuitBreaker>().notNull(),
  /** Of the images that jobs may need, those that its engine has. */
  images: text("images", { mode: "json" }).$type<string[]>().notNull().default([]),
  lastSeenAt: integer("last_seen_at").notNull(),
});
