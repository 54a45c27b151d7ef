import { sqliteTable, text } from "drizzle-orm/sqlite-core";
import type { Compilation } from "../../../shared/wire/execution.ts";
import type { ProgramChoice } from "../../domain/program.ts";
import type { ToolChoice } from "../../domain/tools.ts";
import { bytes } from "./columns.ts";
import { executions } from "./executions.ts";

/** What a call asks for beside its code. `env` goes when it has ended: values may be secrets. */
export interface CallOptions {
  restart?: boolean;
  env?: Record<string, string>;
  fetch?: string[];
}

/**
 * Input and output of an execution. Stored as bytes, because TEXT is cut at NUL when it is read. SQLite walks past all
 * columns before the one that it reads, so small columns come first, and those that are read in pieces come before those
 * that are read once.
 */
export const payloads = sqliteTable("payloads", {
  executionId: text("execution_id")
    .primaryKey()
    .references(() => executions.id, { onDelete: "cascade" }),
  args: text("args", { mode: "json" }).$type<string[]>(),
  /** What runs in place of Python; null for Python. */
  program: text("program", { mode: "json" }).$type<ProgramChoice>(),
  /** The caller's functions that the code can call; null if there are none. */
  tools: text("tools", { mode: "json" }).$type<ToolChoice>(),
  /** What calls have besides. */
  call: text("call", { mode: "json" }).$type<CallOptions>(),
  /** Null if no compiler ran. */
  compile: text("compile", { mode: "json" }).$type<Compilation>(),
  stdout: bytes("stdout"),
  stderr: bytes("stderr"),
  output: bytes("output"),
  stdin: bytes("stdin"),
  code: bytes("code").notNull(),
  input: bytes("input").notNull(),
});
