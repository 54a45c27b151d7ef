import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { ConfigError } from "../config/config.ts";

/**
 * Makes a folder and its missing parents, readable by this user only. Node's own `recursive` option
 * loops forever below an existing folder in which none can be made, for example /proc.
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
      throw new ConfigError(`cannot make ${path}: ${parent} accepts no folders`);
    }
    makeFolder(parent);
    makeFolder(path);
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
