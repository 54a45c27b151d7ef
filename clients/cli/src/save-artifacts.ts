import { randomUUID } from "node:crypto";
import { createWriteStream, existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, isAbsolute, join, relative, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import { UsageError } from "./exit.ts";
import type { Tool } from "./tool.ts";
import { bytes } from "./words.ts";

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
  const sizes = new Map(found.map((one) => [one.name, one.size_bytes]));
  const targets = wanted.map((name) => {
    if (!sizes.has(name)) throw new UsageError(`job ${jobId} has no artifact ${name}`);
    return { name, path: targetIn(folder, name), size: sizes.get(name) ?? 0 };
  });
  const taken = targets.filter(({ path }) => existsSync(path));
  if (taken.length > 0 && !force) {
    throw new UsageError(
      `${taken[0]!.path} exists; --force replaces ${taken.length === 1 ? "it" : `it and ${taken.length - 1} more`}`,
    );
  }
  for (const { name, path, size } of targets) {
    mkdirSync(dirname(path), { recursive: true });
    const answer = await airlock.artifacts.open(jobId, name, { signal });
    // No other file has this name. It is short: the artifact's may be as long as a name can be.
    const partial = join(dirname(path), `.airlock-${randomUUID()}.part`);
    try {
      const body = Readable.fromWeb(answer.body as ReadableStream<Uint8Array>);
      await pipeline(
        withProgress(body, name, size, terminal.watched),
        createWriteStream(partial, { flags: "wx" }),
        { signal },
      );
    } catch (error) {
      rmSync(partial, { force: true });
      throw error;
    }
    renameSync(partial, path);
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

/** Shows how much of a long transfer has arrived, to a person who watches. */
async function* withProgress(
  body: AsyncIterable<Uint8Array>,
  name: string,
  size: number,
  watched: boolean,
): AsyncGenerator<Uint8Array> {
  const shows = watched && size > 8_000_000;
  let [done, shownAt] = [0, 0];
  for await (const part of body) {
    done += part.length;
    if (shows && Date.now() - shownAt > 200) {
      shownAt = Date.now();
      process.stderr.write(`\r${name}  ${bytes(done)} of ${bytes(size)}\x1b[K`);
    }
    yield part;
  }
  if (shows) process.stderr.write(`\r${name}  ${bytes(size)}\x1b[K\n`);
}
