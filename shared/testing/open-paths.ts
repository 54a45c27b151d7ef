import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/** A folder and all in it on which other users have rights, each with its mode. */
export function openPaths(folder: string): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return [folder, ...names.map((name) => join(folder, name))]
    .map((path) => ({ path, mode: statSync(path, { throwIfNoEntry: false })?.mode ?? 0 }))
    .filter(({ mode }) => (mode & 0o077) !== 0)
    .map(({ path, mode }) => `${path} ${(mode & 0o777).toString(8)}`);
}
