import { constants, existsSync, lstatSync, type Stats, statSync } from "node:fs";
import { readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ConfigError } from "../../../shared/config/config.ts";
import { makeFolder } from "../../../shared/process/make-folder.node.ts";

/** This agent's folder for artifacts on their way from containers to the API. */
export type SpoolDir = {
  /** Readable by its owner and root alone. */
  readonly path: string;
  /** Where the files of one lease go, if it has any: a folder for them to make, gone once disposed of. */
  readonly folder: (leaseId: string) => AsyncDisposable & { readonly path: string };
  /** Throws where no file can be written, as on a full disk. */
  readonly check: () => Promise<void>;
  /**
   * Removes the folders of agents that do not live any more; `isAlive` says null where it cannot
   * tell. The folder of one that is surely dead stays until `isReported`.
   */
  readonly removeLeftOvers: (
    isAlive: (agentId: string, place: string) => Promise<boolean | null>,
    isReported: (agentId: string) => boolean,
  ) => Promise<void>;
  readonly remove: () => Promise<void>;
};

/** In such a folder only its owner may rename or remove an entry. */
const STICKY = 0o1000;

/** An agent writes to its folder every few seconds; one that is left behind stays as it is. */
const LEFT_BEHIND_MS = 10 * 60_000;
/** Names, in an agent's folder, where that agent's life can be seen. */
const PLACE = "place";

/**
 * Opens the agent's own folder in `root`.
 *
 * @throws ConfigError where another user could put something else in its place; the system's errors.
 */
export async function openSpoolDir(
  root: string,
  agentId: string,
  place: string,
): Promise<SpoolDir> {
  const own = join(root, agentId);
  const probe = join(own, "probe");
  makeFolder(root);
  refuseForeign(root);
  makeFolder(own);
  await writeFile(join(own, PLACE), place);

  return {
    path: own,
    folder: (leaseId) => {
      const path = join(own, leaseId);
      return { path, [Symbol.asyncDispose]: () => remove(path) };
    },
    check: async () => {
      await writeFile(probe, "airlock\n");
      // Forced, as two may look at a time.
      await rm(probe, { force: true });
    },
    removeLeftOvers: async (isAlive, isReported) => {
      const others = (await readdir(root)).filter((name) => name !== agentId && isAgentId(name));
      for (const name of others) {
        const path = join(root, name);
        const its = await readFile(join(path, PLACE), "utf8").catch(() => "");
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

/** Why what another user may do with a folder, or a link to it, is too much; null where it is not. */
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
  // Most jobs never make theirs, and rm looks for it in several steps.
  if (existsSync(path)) await rm(path, { recursive: true, force: true });
}
