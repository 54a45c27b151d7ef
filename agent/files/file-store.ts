import { createHash, randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { LeasedFile } from "../../shared/wire/file.ts";
import { type Kept, toEvict } from "../policy/evict.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { abortable } from "../waiting/abortable.ts";

/**
 * The input files of jobs on this agent's disk, by tenant and content: each is fetched once, however many jobs of the
 * tenant have it. Otherwise the start of a job would tell whether other tenants have a file.
 */
export interface FileStore {
  /**
   * Lends the files of a job until they are given back, and fetches those that are missing. Waits while
   * files in use leave no room for them.
   *
   * @param open asks for the bytes of a file, on behalf of this job.
   * @throws JobRefusal if there can never be room for them; the signal's reason; what `open` throws; the disk's errors.
   */
  readonly borrow: (
    tenant: string,
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

interface Entry extends Kept {
  users: number;
  readonly path: string;
  readonly ready: Promise<void>;
  /** The job whose request fetches it. */
  readonly open: OpenFile;
  isComplete: boolean;
  /** Ends a download that nobody waits for. */
  readonly end: AbortController;
}

const keyOf = (tenant: string, { sha256 }: Pick<LeasedFile, "sha256">): string =>
  `${tenant} ${sha256}`;

/** @param folder Used by this store only, and removed with the agent's process. */
export function createFileStore(folder: string, maxBytes: number): FileStore {
  /** By tenant and SHA-256, the least recently used first. */
  const entries = new Map<string, Entry>();
  let givenBack = Promise.withResolvers<void>();

  /** Makes room for these files, by removing what nobody uses; false if others use too much. */
  function makeRoom(tenant: string, wanted: ReadonlyMap<string, LeasedFile>): boolean {
    const others = [...entries]
      .filter(([key]) => !wanted.has(key))
      .map(([key, entry]) => ({ key, ...entry }));
    const needed = { key: "", owner: tenant, bytes: sizeOf(wanted.values()), users: 1, path: "" };
    const inUse = others.filter(({ users }) => users > 0);
    if (needed.bytes + bytesOf(inUse) > maxBytes) return false;
    for (const { key, path } of toEvict(
      [...others, needed],
      maxBytes,
      ({ users }) => users === 0,
    )) {
      entries.delete(key);
      void rm(path, { force: true }).catch(() => {});
    }
    return true;
  }

  function begin(owner: string, file: LeasedFile, open: OpenFile, previous: Promise<void>): Entry {
    const end = new AbortController();
    const path = join(folder, randomUUID());
    const ready = previous.catch(() => {}).then(() => write(file, open, path, end.signal));
    const bytes = file.size_bytes;
    const entry = { owner, users: 0, path, bytes, ready, open, end, isComplete: false };
    const drop = (): void => {
      forget(keyOf(owner, file), entry);
      void rm(path, { force: true }).catch(() => {});
    };
    // The last job may end between the last byte and this callback. Then nobody else removes the file.
    ready.then(() => (end.signal.aborted ? drop() : void (entry.isComplete = true)), drop);
    return entry;
  }

  function forget(key: string, entry: Entry): void {
    if (entries.get(key) === entry) entries.delete(key);
  }

  function take(owner: string, file: LeasedFile, open: OpenFile, previous: Promise<void>): Entry {
    const key = keyOf(owner, file);
    const entry = entries.get(key) ?? begin(owner, file, open, previous);
    // Moves it to the end: the most recently used.
    entries.delete(key);
    entries.set(key, entry);
    entry.users += 1;
    return entry;
  }

  function leave(key: string, entry: Entry): void {
    entry.users -= 1;
    if (entry.users > 0) return;
    if (!entry.isComplete) {
      forget(key, entry);
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
    async borrow(tenant, files, open, signal) {
      const wanted = new Map(files.map((file) => [keyOf(tenant, file), file]));
      const needed = sizeOf(wanted.values());
      if (needed > maxBytes) {
        const message = `The files of the job have ${needed} bytes, and the agent keeps ${maxBytes} on disk: raise its input_files_bytes.`;
        throw new JobRefusal("config_error", message);
      }
      while (!makeRoom(tenant, wanted)) await abortable(givenBack.promise, signal);
      const lent = new Map<string, Entry>();
      const giveBack = (): void => {
        for (const [key, entry] of lent) leave(key, entry);
        lent.clear();
      };
      // One after the other: a job has up to 100 files.
      let previous = Promise.resolve();
      for (const [key, file] of wanted) {
        const entry = take(tenant, file, open, previous);
        lent.set(key, entry);
        previous = entry.ready;
      }
      try {
        for (const [key, file] of wanted) {
          for (;;) {
            const entry = lent.get(key)!;
            try {
              await abortable(entry.ready, signal);
              break;
            } catch (error) {
              signal.throwIfAborted();
              // Another job's lease may have ended while it fetched the file.
              if (entry.open === open) throw error;
              leave(key, entry);
              lent.set(key, take(tenant, file, open, Promise.resolve()));
            }
          }
        }
      } catch (error) {
        giveBack();
        throw error;
      }
      const paths = new Map([...lent].map(([key, { path }]) => [key, path]));
      return { pathOf: (sha256) => paths.get(keyOf(tenant, { sha256 }))!, giveBack };
    },
  };
}

function sizeOf(files: Iterable<LeasedFile>): number {
  return [...files].reduce((sum, { size_bytes }) => sum + size_bytes, 0);
}

function bytesOf(entries: readonly Kept[]): number {
  return entries.reduce((sum, { bytes }) => sum + bytes, 0);
}
