import { existsSync } from "node:fs";
import { readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeFolder } from "../../../shared/process/make-folder.node.ts";

/** This agent's folder for artifacts on their way from containers to the API. */
export type SpoolDir = {
  /** Readable by its owner and root alone. */
  readonly path: string;
  /** Where the files of one lease go, if it has any: a folder for them to make, gone once disposed of. */
  readonly folder: (leaseId: string) => AsyncDisposable & { readonly path: string };
  /** Throws where no file can be written, as on a full disk. */
  readonly check: () => Promise<void>;
  readonly remove: () => Promise<void>;
};

export function defaultSpoolDir(): string {
  return join(tmpdir(), `airlock-spool-${process.getuid?.() ?? 0}`);
}

/** Opens the agent's own folder in `root`, and removes those whose agents are dead. */
export async function openSpoolDir(
  root: string,
  agentId: string,
  isAlive: (agentId: string) => Promise<boolean>,
): Promise<SpoolDir> {
  const own = join(root, agentId);
  const probe = join(own, "probe");
  makeFolder(own);
  for (const name of await readdir(root)) {
    if (name !== agentId && isAgentId(name) && !(await isAlive(name)))
      await remove(join(root, name));
  }

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
    remove: () => remove(own),
  };
}

/** A spool_dir may hold other people's files too. */
function isAgentId(name: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(name);
}

async function remove(path: string): Promise<void> {
  // Most jobs never make theirs, and rm looks for it in several steps.
  if (existsSync(path)) await rm(path, { recursive: true, force: true });
}
