import { constants, existsSync, lstatSync, type Stats, statSync } from "node:fs";
import { readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ConfigError } from "../../../shared/config/config.ts";
import { makeFolder } from "../../../shared/process/make-folder.node.ts";

/** This agent's folder for artifacts on their way from containers to the API. */
export type SpoolDir = {
  /** Readable only by its owner and root. */
  readonly path: string;
  /**
   * The folder for the files of one lease. The caller creates it if it has files; disposing removes
   * it.
   */
  readonly folder: (leaseId: string) => AsyncDisposable & { readonly path: string };
  /** Throws if no file can be written, for example on a full disk. */
  readonly check: () => Promise<void>;
  /**
   * Removes the folders of dead agents; `isAlive` returns null if it cannot tell. The folder of an
   * agent that is certainly dead stays until `isReported`.
   */
  readonly removeLeftOvers: (
    isAlive: (agentId: string, hostScope: string) => Promise<boolean | null>,
    isReported: (agentId: string) => boolean,
  ) => Promise<void>;
  readonly remove: () => Promise<void>;
};

/** In such a folder only its owner may rename or remove an entry. */
const STICKY = 0o1000;

/**
 * An agent writes to its folder every few seconds. A folder without writes for this long is left
 * over.
 */
const LEFT_BEHIND_MS = 10 * 60_000;
/** A file in an agent's folder. It has the agent's host scope, which says where its socket can be seen. */
const HOST_SCOPE = "host-scope";

/**
 * Opens the agent's own folder in `root`.
 *
 * @throws ConfigError if another user could replace the folder; the system's errors.
 */
export async function openSpoolDir(
  root: string,
  agentId: string,
  hostScope: string,
): Promise<SpoolDir> {
  const own = join(root, agentId);
  const probe = join(own, "probe");
  makeFolder(root);
  refuseForeign(root);
  makeFolder(own);
  try {
    await writeFile(join(own, HOST_SCOPE), hostScope);
  } catch (error) {
    // Without its scope, no other agent can tell whose it is.
    await rm(own, { recursive: true, force: true });
    throw error;
  }

  return {
    path: own,
    folder: (leaseId) => {
      const path = join(own, leaseId);
      // The result is posted by then. What cannot be removed goes with the agent's folder.
      return { path, [Symbol.asyncDispose]: () => remove(path).catch(() => {}) };
    },
    check: async () => {
      await writeFile(probe, "airlock\n");
      // With `force`, because two agents may check at once.
      await rm(probe, { force: true });
    },
    removeLeftOvers: async (isAlive, isReported) => {
      const others = (await readdir(root)).filter((name) => name !== agentId && isAgentId(name));
      for (const name of others) {
        const path = join(root, name);
        const its = await readFile(join(path, HOST_SCOPE), "utf8").catch(() => "");
        const lives = await isAlive(name, its);
        const isDone = lives === false ? isReported(name) : !(lives ?? (await isFresh(path)));
        if (isDone) await remove(path);
      }
    },
    remove: () => remove(own),
  };
}

/** By the clock of the file system, which another host may share. */
async function isFresh(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => null);
  return found !== null && Date.now() - found.mtimeMs < LEFT_BEHIND_MS;
}

function refuseForeign(root: string): void {
  for (const stats of [lstatSync(root), statSync(root)]) {
    const problem = describeForeign(stats, process.getuid?.() ?? 0);
    if (problem === null) continue;
    throw new ConfigError(
      `spool_dir ${root} ${problem}: whoever that is could read and replace jobs' files; choose a folder of the agent's own user`,
    );
  }
}

/**
 * Why another user has too many rights on a folder or a link to it; null if the rights are safe.
 */
export function describeForeign(
  { uid, mode }: Pick<Stats, "uid" | "mode">,
  ownUid: number,
): string | null {
  if (uid !== ownUid && uid !== 0) return `belongs to the user ${uid}`;
  const isLink = (mode & constants.S_IFMT) === constants.S_IFLNK;
  const isShared = (mode & 0o022) !== 0 && (mode & STICKY) === 0;
  return isShared && !isLink ? "may be written to by other users" : null;
}

/** A spool_dir may hold other people's files too. */
function isAgentId(name: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(name);
}

async function remove(path: string): Promise<void> {
  // Most jobs never create their folder, and rm is slower than this check.
  if (existsSync(path)) await rm(path, { recursive: true, force: true });
}
