import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { ConfigError } from "../config/config.ts";

/**
 * Makes a folder, and those it lies in, for its user alone, where they are not there. Node's own
 * `recursive` never ends where a folder is there and takes none, such as /proc.
 *
 * @throws ConfigError in that case; else the system's error.
 */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && isFolder(path)) return;
    if (code !== "ENOENT") throw error;
    const parent = dirname(path);
    if (isFolder(parent)) {
      throw new ConfigError(`cannot make ${path}: ${parent} takes no folders`);
    }
    makeFolder(parent);
    makeFolder(path);
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
