import { randomUUID } from "node:crypto";
import {
  createWriteStream,
  existsSync,
  fstatSync,
  openAsBlob,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { access, constants, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import type { Command } from "commander";
import { ConnectionError } from "../typescript/src/index.ts";
import { makeFolder } from "./connection.ts";
import { interruptible, UsageError } from "./exit.ts";
import { bytes, plain, type Terminal } from "./terminal.ts";
import { addCommand, forEach, show, showList, tenantColumn, type Tool } from "./tool.ts";

/** Commands about files: those that jobs read, and those that they wrote. */
export function addFiles(program: Command): void {
  const files = addCommand(program, "files", "files that jobs can read").command;
  addCommand(files, "put", "upload a file")
    .argument("<path>", "the file")
    .option("--name <name>", "its name; default: the last part of its path")
    .does(async (tool, path, { name = basename(path) }) => {
      const stored = await tool.airlock.files.upload(name, await openFile(path, tool.terminal));
      show(tool, stored, stored.file_id);
    });
  addCommand(files, "list|ls", "files that are stored").does(async (tool) => {
    showList(tool, await tool.airlock.files.list(), "no files", {
      ID: ({ file_id }) => file_id,
      SIZE: ({ size_bytes }) => bytes(size_bytes),
      EXPIRES: ({ expires_at }) => expires_at.slice(0, 16),
      ...tenantColumn(tool),
      NAME: ({ name }) => name,
    });
  });
  addCommand(files, "get", "fetch a file")
    .argument("<file-id>", "its id, from airlock files list")
    .argument("<path>", "where to put it, or - for standard output")
    .option("--force", "replace a file that exists")
    .does(async ({ airlock, terminal }, id, path, { force = false }) => {
      if (path !== "-") checkTarget(path, force);
      return interruptible(async (signal) => {
        const answer = await airlock.files.open(id, { signal });
        if (path !== "-") return saveBody(terminal, answer, path, path, signal);
        const parts = (answer.body ?? []) as AsyncIterable<Uint8Array>;
        for await (const part of parts) await terminal.write(part);
      });
    });
  addCommand(files, "rm", "remove files")
    .argument("<file-id...>", "their ids")
    .does(
      forEach(
        ({ files }, id) => files.delete(id),
        (_, id) => `${id} removed`,
      ),
    );

  addCommand(program, "artifacts", "files that a job wrote to /output")
    .argument("<job>", "id of the job, or the end of the id")
    .argument("[name...]", "with --out: which of them; default: all")
    .option("-o, --out <folder>", "fetch them into a folder")
    .option("--force", "replace files that exist")
    .does(async (tool, id, names, { out, force }) => {
      if (out !== undefined) {
        return interruptible(async (signal) => {
          const saved = await saveArtifacts(tool, id, out, { names, force, signal });
          show(tool, saved, ...saved.map(plain));
        });
      }
      showList(tool, await tool.airlock.artifacts.list(id), "no artifacts", {
        SIZE: ({ size_bytes }) => bytes(size_bytes),
        TYPE: ({ content_type }) => content_type,
        NAME: ({ name }) => name,
      });
    });
}

interface SaveOptions {
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

/** Throws UsageError if something is at a path that a file must not replace. */
function checkTarget(path: string, force: boolean): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw new UsageError(`${path} is a folder: say the name of a file`);
  if (found && !found.isFile()) throw new UsageError(`${path} is not a regular file: it stays`);
  if (found && !force) throw new UsageError(`${path} exists; --force replaces it`);
}

/**
 * Saves the body of an answer as a file, which appears once it is whole.
 *
 * @param name What the progress says.
 * @throws ConnectionError if the connection breaks.
 */
async function saveBody(
  terminal: Terminal,
  answer: Response,
  path: string,
  name: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  // No other file has this name. It is short: the file's own may be as long as a name can be.
  const partial = join(dirname(path), `.airlock-${randomUUID()}.part`);
  const size = Number(answer.headers.get("Content-Length"));
  const progress = showProgress(terminal, name, size);
  async function* body(): AsyncGenerator<Uint8Array> {
    try {
      for await (const part of Readable.fromWeb(answer.body as ReadableStream<Uint8Array>)) {
        progress.add((part as Uint8Array).length);
        yield part as Uint8Array;
      }
    } catch (error) {
      signal?.throwIfAborted();
      const message = `the connection broke while ${name} was fetched: try again`;
      throw new ConnectionError(message, { cause: error });
    }
  }
  try {
    makeFolder(dirname(path));
    await pipeline(body, createWriteStream(partial, { flags: "wx" }), { signal });
    renameSync(partial, path);
  } catch (error) {
    // An unread body would keep the command from ending.
    await answer.body?.cancel().catch(() => {});
    rmSync(partial, { force: true });
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new Error(`${path} cannot be written: ${error.message}`, { cause: error });
  } finally {
    progress.end();
  }
}

/** A file whose bytes are read while they are sent. Shows how far that is. */
export async function openFile(path: string, terminal: Terminal): Promise<Blob> {
  const blob = await open(path);
  const read = blob.stream.bind(blob);
  // `fetch` says nothing about what it has sent, and reads the blob with this method at each try.
  blob.stream = () => {
    const progress = showProgress(terminal, path, blob.size);
    const counting = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform(part, controller) {
        progress.add(part.length);
        controller.enqueue(part);
      },
      flush: () => progress.end(),
    });
    return read().pipeThrough(counting);
  };
  return blob;
}

async function open(path: string): Promise<Blob> {
  try {
    await access(path, constants.R_OK);
    // A folder could be opened, but not read.
    if ((await stat(path)).isFile()) return await openAsBlob(path);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UsageError(
      code === "ENOENT" ? `there is no file ${path}` : `${path} cannot be read: ${message}`,
    );
  }
  throw new UsageError(`${path} is not a regular file`);
}

/** Shorter transfers show nothing. */
const shownBytes = 8_000_000;
const everyMs = 200;

/** How far a transfer is. */
interface Progress {
  add(count: number): void;
  /** Ends the line. */
  end(): void;
}

/** Shows how far a long transfer is, to a person who watches. */
function showProgress({ watched }: Terminal, name: string, size: number): Progress {
  const shows = watched && size > shownBytes;
  let [done, shownAt] = [0, 0];
  const show = (): void => {
    const count = `  ${bytes(done)} of ${bytes(size)}`;
    // A longer line would wrap, and the next one could not replace it.
    const room = Math.max(8, (process.stderr.columns || 80) - count.length - 1);
    process.stderr.write(`\r${plain(name).slice(0, room)}${count}\x1b[K`);
  };
  return {
    add(count) {
      done += count;
      if (!shows || Date.now() - shownAt < everyMs) return;
      shownAt = Date.now();
      show();
    },
    end() {
      if (shownAt === 0) return;
      show();
      process.stderr.write("\n");
    },
  };
}

/**
 * The text of a file, or of standard input as "-".
 *
 * @param otherwise What the person can do if it is not text.
 */
export async function readText(file: string, otherwise = "save it as UTF-8"): Promise<string> {
  const bytes = file === "-" ? await buffer(process.stdin) : read(file);
  try {
    // Keeps a byte order mark, as Python does.
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    const name = file === "-" ? "standard input" : file;
    throw new UsageError(`${name} is not UTF-8 text: ${otherwise}`);
  }
}

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") throw new UsageError(`there is no file ${file}`);
    if (code === "EISDIR") throw new UsageError(`${file} is a folder`);
    throw new UsageError(`${file} cannot be read: ${message}`);
  }
}

/** Whether standard input may have bytes. Reads none. */
export function standardInput(): { hasBytes: boolean } {
  try {
    const found = fstatSync(0);
    return { hasBytes: found.isFIFO() || found.isSocket() || (found.isFile() && found.size > 0) };
  } catch {
    return { hasBytes: false };
  }
}
