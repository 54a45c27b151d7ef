import { createHash, randomUUID } from "node:crypto";
import { constants, createWriteStream, existsSync, lstatSync, type Stats, statSync } from "node:fs";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ConfigError } from "../../shared/config/config.ts";
import { makeFolder } from "../../shared/process/files.node.ts";
import { partBytes } from "../../shared/process/parts.node.ts";
import type { LeasedFile } from "../../shared/wire/files.ts";
import { abortable } from "../waiting.ts";
import { JobRefusal } from "./policy.ts";

export type FileStore = ReturnType<typeof createFileStore>;

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

/**
 * The input files of jobs on this agent's disk, by tenant and content: each is fetched once, however many jobs of the
 * tenant have it. Otherwise the start of a job would tell whether other tenants have a file.
 *
 * @param folder Used by this store only, and removed with the agent's process.
 */
export function createFileStore(folder: string, maxBytes: number) {
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
    const disk = createWriteStream(path, { flags: "wx", mode: 0o600, highWaterMark: partBytes });
    await pipeline(body, checked, disk, { signal });
    if (bytes !== file.size_bytes || hash.digest("hex") !== file.sha256) {
      throw new Error(`the API sent other bytes than those of the input file ${file.sha256}`);
    }
  }

  return {
    /**
     * Lends the files of a job until they are given back, and fetches those that are missing. Waits while
     * files in use leave no room for them.
     *
     * @param open asks for the bytes of a file, on behalf of this job.
     * @throws JobRefusal if there can never be room for them; the signal's reason; what `open` throws; the disk's errors.
     */
    async borrow(
      tenant: string,
      files: readonly LeasedFile[],
      open: OpenFile,
      signal: AbortSignal,
    ): Promise<FileLoan> {
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

/** What stands for a tenant in names on disk: 8 hex digits. */
export function ownerOf(tenant: string): string {
  return createHash("sha256").update(tenant).digest("hex").slice(0, 8);
}

/** Something on disk that was made for one tenant's jobs. */
interface Kept {
  readonly owner: string;
  readonly bytes: number;
}

/**
 * What to remove until the rest fits: again and again the least recently used of the owner that holds most, so
 * that no tenant displaces what another has kept in its own part.
 *
 * @param kept the least recently used first.
 * @param mayGo whether it can be removed; what cannot counts as held.
 */
export function toEvict<T extends Kept>(
  kept: readonly T[],
  maxBytes: number,
  mayGo: (one: T) => boolean = () => true,
): T[] {
  const held = new Map<string, number>();
  for (const { owner, bytes } of kept) held.set(owner, (held.get(owner) ?? 0) + bytes);
  let total = [...held.values()].reduce((sum, bytes) => sum + bytes, 0);
  const free = kept.filter(mayGo);
  const gone: T[] = [];
  while (total > maxBytes && free.length > 0) {
    const most = Math.max(...free.map(({ owner }) => held.get(owner)!));
    const at = free.findIndex(({ owner }) => held.get(owner) === most);
    const [one] = free.splice(at, 1);
    total -= one!.bytes;
    held.set(one!.owner, most - one!.bytes);
    gone.push(one!);
  }
  return gone;
}

export type SpoolDir = Awaited<ReturnType<typeof openSpoolDir>>;

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
 * Opens the agent's own folder in `root`, for artifacts on their way from containers to the API.
 *
 * @throws ConfigError if another user could replace the folder; the system's errors.
 */
export async function openSpoolDir(root: string, agentId: string, hostScope: string) {
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
    /** Readable only by its owner and root. */
    path: own,
    /**
     * The folder for the files of one lease. The caller creates it if it has files; disposing removes
     * it.
     */
    folder: (leaseId: string): AsyncDisposable & { readonly path: string } => {
      const path = join(own, leaseId);
      // The result is posted by then. What cannot be removed goes with the agent's folder.
      return { path, [Symbol.asyncDispose]: () => remove(path).catch(() => {}) };
    },
    /** Throws if no file can be written, for example on a full disk. */
    check: async (): Promise<void> => {
      await writeFile(probe, "airlock\n");
      // With `force`, because two agents may check at once.
      await rm(probe, { force: true });
    },
    /**
     * Removes the folders of dead agents; `isAlive` returns null if it cannot tell. The folder of an
     * agent that is certainly dead stays until `isReported`.
     */
    removeLeftOvers: async (
      isAlive: (agentId: string, hostScope: string) => Promise<boolean | null>,
      isReported: (agentId: string) => boolean,
    ): Promise<void> => {
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
