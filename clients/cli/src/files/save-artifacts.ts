import { existsSync } from "node:fs";
import { isAbsolute, join, relative, resolve } from "node:path";
import { UsageError } from "../exit.ts";
import { saveBody } from "./save-body.ts";
import type { Tool } from "../tool.ts";

export interface SaveOptions {
  /** Names of the files; default: all. */
  names?: readonly string[];
  /** Whether files that exist are replaced. */
  force?: boolean | undefined;
  /** Stops fetching; a partial file is removed. */
  signal?: AbortSignal | undefined;
}

/** Fetches files of a job into a folder. Checks every name first, so that nothing is saved by half. */
export async function saveArtifacts(
  { airlock, terminal }: Tool,
  jobId: string,
  folder: string,
  { names, force = false, signal }: SaveOptions,
): Promise<string[]> {
  const found = await airlock.artifacts.list(jobId);
  const wanted = names?.length ? names : found.map(({ name }) => name);
  const known = new Set(found.map(({ name }) => name));
  const targets = wanted.map((name) => {
    if (!known.has(name)) {
      throw new UsageError(
        `job ${jobId} has no artifact ${name}; airlock artifacts ${jobId} lists them`,
      );
    }
    return { name, path: targetIn(folder, name) };
  });
  const taken = targets.filter(({ path }) => existsSync(path));
  if (taken.length > 0 && !force) {
    throw new UsageError(
      `${taken[0]!.path} exists; --force replaces ${taken.length === 1 ? "it" : `it and ${taken.length - 1} more`}`,
    );
  }
  for (const { name, path } of targets) {
    const answer = await airlock.artifacts.open(jobId, name, { signal });
    await saveBody(terminal, answer, path, name, signal);
  }
  return targets.map(({ path }) => path);
}

/** @throws UsageError for a name that leads out of the folder. */
export function targetIn(folder: string, name: string): string {
  const path = resolve(folder, name);
  const within = relative(resolve(folder), path);
  if (within === "" || within.startsWith("..") || isAbsolute(within)) {
    throw new UsageError(`the artifact ${JSON.stringify(name)} would be saved outside ${folder}`);
  }
  return join(folder, within);
}
