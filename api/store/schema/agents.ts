import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import {
  type CircuitBreaker,
  type EngineHealth,
  type GpuCount,
  type PoolKind,
} from "../../../shared/wire/health.ts";
import { type Accepted } from "../../../shared/wire/agent/lease.ts";

/** Agent processes that have polled. */
export const agents = sqliteTable("agents", {
  id: text("id").primaryKey(),
  name: text("name").notNull(),
  /** Its token: the SHA-256 of a configured token, or an id in `agentTokens`. */
  tokenHash: text("token_hash").notNull(),
  version: text("version").notNull(),
  labels: text("labels", { mode: "json" }).$type<Record<string, string>>().notNull(),
  accepts: text("accepts", { mode: "json" }).$type<Accepted>().notNull(),
  slots: integer("slots").notNull(),
  gpus: text("gpus", { mode: "json" }).$type<GpuCount>().notNull(),
  warm: integer("warm").notNull(),
  pool: text("pool", { mode: "json" }).$type<PoolKind[]>().notNull(),
  engine: text("engine", { mode: "json" }).$type<EngineHealth>().notNull(),
  breaker: text("breaker", { mode: "json" }).$type<CircuitBreaker>().notNull(),
  /** Sessions that it holds or has room for, as of its last poll. Null: it takes none. */
  maxSessions: integer("max_sessions"),
  /** Images that jobs may need and that its engine has. */
  images: text("images", { mode: "json" }).$type<string[]>().notNull(),
  lastSeenAt: integer("last_seen_at").notNull(),
  /** When an operator drained the agent: it takes no new jobs and builds since. */
  drainingAt: integer("draining_at"),
  /** When it left. A delayed request from before must not register it again. */
  leftAt: integer("left_at"),
});

/** Tokens of agents that joined. Each agent has its own, which can be revoked. Times are epoch milliseconds. */
export const agentTokens = sqliteTable("agent_tokens", {
  id: text("id").primaryKey(),
  /** Name that operators use for the host. */
  name: text("name").notNull(),
  /** SHA-256 (hex) of the token. Only its host has the token itself. */
  tokenHash: text("token_hash").notNull().unique(),
  /** SHA-256 of its successor, which replaces it when it is first used. */
  nextHash: text("next_hash").unique(),
  createdAt: integer("created_at").notNull(),
  lastUsedAt: integer("last_used_at"),
  revokedAt: integer("revoked_at"),
  /** When an operator asked the host to replace it; null if nobody did, or once it is replaced. */
  rotationAskedAt: integer("rotation_asked_at"),
});

/** One-time codes with which a host can join. */
export const joinCodes = sqliteTable("join_codes", {
  /** SHA-256 (hex) of the code. */
  codeHash: text("code_hash").primaryKey(),
  /** Name for the joining host; null if the host may choose. */
  name: text("name"),
  createdAt: integer("created_at").notNull(),
  expiresAt: integer("expires_at").notNull(),
  /** Token that it was exchanged for; null while it is unused. */
  tokenId: text("token_id").references(() => agentTokens.id),
});
