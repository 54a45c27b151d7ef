import { chmodSync, statSync } from "node:fs";

/** Rights of a group and of others. */
const others = 0o077;
/** A folder such as /tmp is for everybody. */
const sticky = 0o1000;

/**
 * Takes the rights of other users from these files and folders, as far as they exist and this process may.
 * A sticky folder stays as it is.
 * Returns those that were open.
 */
export function closeToOthers(paths: readonly string[]): string[] {
  return paths.filter((path) => {
    const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
    if ((mode & others) === 0 || (mode & sticky) !== 0) return false;
    try {
      chmodSync(path, mode & 0o7777 & ~others);
    } catch {
      // Another user's: its owner decides.
      return false;
    }
    return true;
  });
}
