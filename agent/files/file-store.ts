import { createHash, randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { LeasedFile } from "../../shared/wire/file.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { abortable } from "../waiting/abortable.ts";

/** The input files of jobs on this agent's disk, by content: each is fetched once, however many jobs have it. */
export interface FileStore {
  /**
   * Lends the files of a job until they are given back, and fetches those that are missing. Waits while
   * files in use leave no room for them.
   *
   * @param open asks for the bytes of a file, on behalf of this job.
   * @throws JobRefusal if there can never be room for them; the signal's reason; what `open` throws; the disk's errors.
   */
  readonly borrow: (
    files: readonly LeasedFile[],
    open: OpenFile,
    signal: AbortSignal,
  ) => Promise<FileLoan>;
}

export type OpenFile = (file: LeasedFile, signal: AbortSignal) => Promise<Readable>;

export interface FileLoan {
  /** The path of a file by its SHA-256. */
  readonly pathOf: (sha256: string) => string;
  /** Safe to call twice. */
  readonly giveBack: () => void;
}

interface Entry {
  users: number;
  readonly path: string;
  readonly bytes: number;
  readonly ready: Promise<void>;
  /** The job whose request fetches it. */
  readonly open: OpenFile;
  isComplete: boolean;
  /** Ends a download that nobody waits for. */
  readonly end: AbortController;
}

/** @param folder Used by this store only, and removed with the agent's process. */
export function createFileStore(folder: string, maxBytes: number): FileStore {
  /** By SHA-256, the least recently used first. */
  const entries = new Map<string, Entry>();
  let givenBack = Promise.withResolvers<void>();

  /** Makes room for these files, by removing what nobody uses; false if others use too much. */
  function makeRoom(wanted: ReadonlyMap<string, LeasedFile>): boolean {
    const others = [...entries].filter(([sha256]) => !wanted.has(sha256));
    const inUse = others.filter(([, { users }]) => users > 0);
    let total = sizeOf(wanted.values()) + bytesOf(others);
    if (total - bytesOf(others) + bytesOf(inUse) > maxBytes) return false;
    for (const [sha256, { users, path, bytes }] of others) {
      if (total <= maxBytes || users > 0) continue;
      entries.delete(sha256);
      total -= bytes;
      void rm(path, { force: true }).catch(() => {});
    }
    return true;
  }

  function begin(file: LeasedFile, open: OpenFile, previous: Promise<void>): Entry {
    const end = new AbortController();
    const path = join(folder, randomUUID());
    const ready = previous.catch(() => {}).then(() => write(file, open, path, end.signal));
    const entry = { users: 0, path, bytes: file.size_bytes, ready, open, end, isComplete: false };
    const drop = (): void => {
      forget(file.sha256, entry);
      void rm(path, { force: true }).catch(() => {});
    };
    // The last job may end between the last byte and this callback. Then nobody else removes the file.
    ready.then(() => (end.signal.aborted ? drop() : void (entry.isComplete = true)), drop);
    return entry;
  }

  function forget(sha256: string, entry: Entry): void {
    if (entries.get(sha256) === entry) entries.delete(sha256);
  }

  function take(file: LeasedFile, open: OpenFile, previous: Promise<void>): Entry {
    const entry = entries.get(file.sha256) ?? begin(file, open, previous);
    // Moves it to the end: the most recently used.
    entries.delete(file.sha256);
    entries.set(file.sha256, entry);
    entry.users += 1;
    return entry;
  }

  function leave(sha256: string, entry: Entry): void {
    entry.users -= 1;
    if (entry.users > 0) return;
    if (!entry.isComplete) {
      forget(sha256, entry);
      entry.end.abort(new Error("no job waits for the file any more"));
    }
    givenBack.resolve();
    givenBack = Promise.withResolvers();
  }

  async function write(
    file: LeasedFile,
    open: OpenFile,
    path: string,
    signal: AbortSignal,
  ): Promise<void> {
    signal.throwIfAborted();
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const body = await open(file, signal);
    const hash = createHash("sha256");
    let bytes = 0;
    async function* checked(pieces: AsyncIterable<Buffer>) {
      for await (const piece of pieces) {
        bytes += piece.length;
        if (bytes > file.size_bytes) break;
        hash.update(piece);
        yield piece;
      }
    }
    const disk = createWriteStream(path, { flags: "wx", mode: 0o600 });
    await pipeline(body, checked, disk, { signal });
    if (bytes !== file.size_bytes || hash.digest("hex") !== file.sha256) {
      throw new Error(`the API sent other bytes than those of the input file ${file.sha256}`);
    }
  }

  return {
    async borrow(files, open, signal) {
      const wanted = new Map(files.map((file) => [file.sha256, file]));
      const needed = sizeOf(wanted.values());
      if (needed > maxBytes) {
        const message = `The files of the job have ${needed} bytes, and the agent keeps ${maxBytes} on disk: raise its input_files_bytes.`;
        throw new JobRefusal("config_error", message);
      }
      while (!makeRoom(wanted)) await abortable(givenBack.promise, signal);
      const lent = new Map<string, Entry>();
      const giveBack = (): void => {
        for (const [sha256, entry] of lent) leave(sha256, entry);
        lent.clear();
      };
      // One after the other: a job has up to 100 files.
      let previous = Promise.resolve();
      for (const [sha256, file] of wanted) {
        const entry = take(file, open, previous);
        lent.set(sha256, entry);
        previous = entry.ready;
      }
      try {
        for (const [sha256, file] of wanted) {
          for (;;) {
            const entry = lent.get(sha256)!;
            try {
              await abortable(entry.ready, signal);
              break;
            } catch (error) {
              signal.throwIfAborted();
              // Another job's lease may have ended while it fetched the file.
              if (entry.open === open) throw error;
              leave(sha256, entry);
              lent.set(sha256, take(file, open, Promise.resolve()));
            }
          }
        }
      } catch (error) {
        giveBack();
        throw error;
      }
      const paths = new Map([...lent].map(([sha256, { path }]) => [sha256, path]));
      return { pathOf: (sha256) => paths.get(sha256)!, giveBack };
    },
  };
}

function sizeOf(files: Iterable<LeasedFile>): number {
  return [...files].reduce((sum, { size_bytes }) => sum + size_bytes, 0);
}

function bytesOf(entries: readonly (readonly [string, Entry])[]): number {
  return entries.reduce((sum, [, { bytes }]) => sum + bytes, 0);
}
