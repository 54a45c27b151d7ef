import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import {
  type CircuitBreaker,
  type EngineHealth,
  type GpuCount,
  type PoolKind,
} from "../../../shared/wire/health.ts";
import { type Accepted } from "../../../shared/wire/lease.ts";

/** Agent processes that have polled. */
export const agents = sqliteTable("agents", {
  id: text("id").primaryKey(),
  name: text("name").notNull(),
  /** Whose token it presents: the SHA-256 of a configured one, the id of one in `agentTokens`. */
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
  /** Of the images that jobs may need, those that its engine has. */
  images: text("images", { mode: "json" }).$type<string[]>().notNull(),
  lastSeenAt: integer("last_seen_at").notNull(),
  /** When it took its leave: what it sent before and comes later must not bring it back. */
  leftAt: integer("left_at"),
});

/** Tokens of agents that joined: each its agent's own, and revocable. Times are epoch milliseconds. */
export const agentTokens = sqliteTable("agent_tokens", {
  id: text("id").primaryKey(),
  /** Of the host, as its operators call it. */
  name: text("name").notNull(),
  /** SHA-256 (hex) of the token, which its host alone has. */
  tokenHash: text("token_hash").notNull().unique(),
  /** SHA-256 of the one that takes its place as soon as it is used. */
  nextHash: text("next_hash").unique(),
  createdAt: integer("created_at").notNull(),
  lastUsedAt: integer("last_used_at"),
  revokedAt: integer("revoked_at"),
});

/** One-time codes, each for one host to join with. */
export const joinCodes = sqliteTable("join_codes", {
  /** SHA-256 (hex) of the code. */
  codeHash: text("code_hash").primaryKey(),
  /** Name that the joining host is to have; null where it may choose. */
  name: text("name"),
  createdAt: integer("created_at").notNull(),
  expiresAt: integer("expires_at").notNull(),
  /** What it was exchanged for; null while it is unused. */
  tokenId: text("token_id").references(() => agentTokens.id),
});
