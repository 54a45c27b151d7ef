import { getTableColumns } from "drizzle-orm";
import { executions, type payloads } from "../schema.ts";

const { lostAttempts: _lostAttempts, ...others } = getTableColumns(executions);

/** What is read of a row. Only the readers of a record need the lost attempts. */
export const executionColumns = others;

export type ExecutionRow = Omit<typeof executions.$inferSelect, "lostAttempts">;

export const bytesOf = (...parts: (Uint8Array | null | undefined)[]): number =>
  parts.reduce((sum, part) => sum + (part?.length ?? 0), 0);

/** What the code of an execution is given. */
export type SubmittedPayload = Pick<
  typeof payloads.$inferSelect,
  "code" | "input" | "stdin" | "args" | "program" | "tools" | "call"
>;
