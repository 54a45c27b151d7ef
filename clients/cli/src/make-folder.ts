import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { UsageError } from "./exit.ts";

/**
 * Makes a folder and those above it. Node's `recursive` would never return where the system answers ENOENT for a
 * folder whose parent exists, as in /proc.
 */
export function makeFolder(path: string, mode = 0o777): void {
  try {
    if (statSync(path, { throwIfNoEntry: false })) return;
    makeFolder(dirname(path), mode);
    mkdirSync(path, { mode });
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    // Another command may have made it meanwhile.
    if (code !== "EEXIST") throw new UsageError(`the folder ${path} cannot be made: ${message}`);
  }
}
