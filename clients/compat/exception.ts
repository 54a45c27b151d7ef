import type { ExecutionRecord } from "../../shared/wire/execution.ts";

/** What ended a cell, as notebooks tell it. */
export interface Exception {
  readonly name: string;
  readonly value: string;
  readonly traceback: string;
}

/**
 * The exception that ended a cell. What is none, such as a time limit, has the type of its error for a name.
 *
 * @param stderr Its end, or all of it: the traceback is there.
 */
export function exceptionOf(
  { error, status }: Pick<ExecutionRecord, "error" | "status">,
  stderr: string,
): Exception | undefined {
  if (error === null) return undefined;
  const start = stderr.lastIndexOf("Traceback (most recent call last):");
  const [, name, value = ""] = /^([\w.<>]+)(?:: ([^]*))?$/.exec(error.message.trim()) ?? [];
  if (status !== "failed" || name === undefined) {
    return { name: error.type, value: error.message, traceback: stderr.slice(Math.max(0, start)) };
  }
  return { name: name.split(".").at(-1)!, value, traceback: stderr.slice(Math.max(0, start)) };
}
