import { createHash, type Hash, randomUUID } from "node:crypto";
import { type FileHandle, open, readdir, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import { makeFolder } from "../../shared/process/files.node.ts";
import { ownerOf, toEvict } from "../host/files.ts";

export type PackageCache = Awaited<ReturnType<typeof openPackageCache>>;

type KeptSet = AsyncDisposable & { readonly pieces: () => AsyncIterable<Uint8Array> };

const ENDING = ".packages";
const PART = ".part";
const DIGEST_BYTES = 32;
const PIECE_BYTES = 256 * 1024;
/** Longer than any installation may take. */
const PART_MAX_AGE_MS = 60 * 60_000;

/**
 * Caches installed packages for the next job of a tenant with the same requirements. A key begins with `ownerOf`.
 * Opens a folder of files `<key>.packages`: the cached bytes, then their SHA-256. Several agents
 * may share it. It only gets files that root wrote before any code ran.
 */
export async function openPackageCache(folder: string, maxBytes: number, log: Logger) {
  makeFolder(folder);
  const pathOf = (key: string): string => join(folder, `${key}${ENDING}`);

  /** The entry of a key, with its checksum verified; null if it is missing or incomplete. */
  async function find(key: string): Promise<KeptSet | null> {
    const path = pathOf(key);
    let file: FileHandle | null = null;
    try {
      file = await open(path);
      const kept = await read(file);
      if (kept !== null) {
        const now = new Date();
        await utimes(path, now, now).catch(() => {});
        return kept;
      }
      log.warn("kept packages are damaged and removed: {path}", { path });
      await rm(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") {
        log.warn("kept packages not read: {reason}", { reason: describeError(error) });
      }
    }
    await file?.close().catch(() => {});
    return null;
  }

  /** Writes an entry. If it cannot be written, it is not cached; the job does not fail. */
  async function begin(key: string) {
    const part = join(folder, `${randomUUID()}${PART}`);
    let hash = createHash("sha256");
    let bytes = 0;
    let file: FileHandle | null = null;

    async function giveUp(reason: string): Promise<void> {
      log.warn("packages not kept: {reason}", { reason });
      await file?.close().catch(() => {});
      file = null;
      await rm(part, { force: true });
    }
    async function attempt(step: (file: FileHandle) => Promise<unknown>): Promise<void> {
      if (file === null) return;
      await step(file).catch((error: unknown) => giveUp(describeError(error)));
    }

    try {
      file = await open(part, "wx", 0o600);
    } catch (error) {
      await giveUp(describeError(error));
    }
    return {
      /** Drops the pieces so far. */
      async restart(): Promise<void> {
        hash = createHash("sha256");
        bytes = 0;
        await attempt((open) => open.truncate(0));
      },
      write: async (piece: Uint8Array): Promise<void> => {
        bytes += piece.length;
        hash.update(piece);
        if (file !== null && bytes > maxBytes) return giveUp("larger than dependency_cache_bytes");
        const at = bytes - piece.length;
        await attempt((open) => open.write(piece, 0, piece.length, at));
      },
      /** Completes the entry, so that the next job can use it. */
      async commit(): Promise<void> {
        await attempt(async (open) => {
          await open.write(hash.digest(), 0, DIGEST_BYTES, bytes);
          await open.sync();
          await open.close();
          await rename(part, pathOf(key));
          file = null;
        });
        await prune(folder, maxBytes).catch((error: unknown) => {
          log.warn("dependency cache not pruned: {reason}", { reason: describeError(error) });
        });
      },
      async [Symbol.asyncDispose](): Promise<void> {
        await file?.close();
        await rm(part, { force: true });
      },
    };
  }

  return { find, begin };
}

/** The content of a file; null if it is incomplete. */
async function read(file: FileHandle): Promise<KeptSet | null> {
  const size = (await file.stat()).size - DIGEST_BYTES;
  if (size < 0 || !(await isWhole(file, size))) return null;
  return { pieces: () => piecesOf(file, size), [Symbol.asyncDispose]: () => file.close() };
}

async function isWhole(file: FileHandle, size: number): Promise<boolean> {
  const hash: Hash = createHash("sha256");
  for await (const piece of piecesOf(file, size)) hash.update(piece);
  const digest = Buffer.alloc(DIGEST_BYTES);
  await file.read(digest, 0, DIGEST_BYTES, size);
  return hash.digest().equals(digest);
}

async function* piecesOf(file: FileHandle, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < size;) {
    const length = Math.min(PIECE_BYTES, size - at);
    const { bytesRead, buffer } = await file.read(Buffer.alloc(length), 0, length, at);
    if (bytesRead === 0) throw new Error("a file of kept packages became shorter");
    yield buffer.subarray(0, bytesRead);
    at += bytesRead;
  }
}

const isPart = ({ path }: { path: string }): boolean => path.endsWith(PART);

/** Removes files until the rest fits, and left-over parts of writers. */
async function prune(folder: string, maxBytes: number): Promise<void> {
  const found = await Promise.all(
    (await readdir(folder)).map((name) => describeFile(folder, name)),
  );
  const files = found.flat().sort((a, b) => a.usedMs - b.usedMs);
  const old = files.filter((file) => isPart(file) && file.usedMs < Date.now() - PART_MAX_AGE_MS);
  const whole = files.filter((file) => !isPart(file));
  for (const { path } of [...old, ...toEvict(whole, maxBytes)]) await rm(path, { force: true });
}

/** A file of the cache; none if another agent has just removed it. */
async function describeFile(folder: string, name: string) {
  if (!name.endsWith(ENDING) && !name.endsWith(PART)) return [];
  const path = join(folder, name);
  const found = await stat(path).catch(() => null);
  const owner = name.slice(0, ownerOf("").length);
  return found ? [{ path, owner, bytes: found.size, usedMs: found.mtimeMs }] : [];
}
