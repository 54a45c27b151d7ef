import { open, type FileHandle } from "node:fs/promises";
import { LibsqlError } from "@libsql/client";

/** Milliseconds after which a commit is written to disk even if nobody waits for it. */
const idleMs = 100;

/**
 * Writes commits to disk, many with one `sync` of the log. The log has them in order, so the commits on
 * disk are all commits up to one of them. SQLite's own sync would block the event loop at each commit.
 */
export function walSync(sync: () => Promise<void>) {
  const counts = { committed: 0, onDisk: 0 };
  let syncing: Promise<void> | undefined;
  let idle: NodeJS.Timeout | undefined;

  const syncAll = async (): Promise<void> => {
    const upTo = counts.committed;
    clearTimeout(idle);
    idle = undefined;
    await sync();
    counts.onDisk = upTo;
  };

  /** Resolves when every commit before this call is on disk. */
  const synced = async (): Promise<void> => {
    const upTo = counts.committed;
    while (counts.onDisk < upTo) {
      await (syncing ??= syncAll().finally(() => (syncing = undefined)));
    }
  };

  return {
    synced,
    /** Counts a commit. */
    wrote(): void {
      counts.committed += 1;
      idle ??= setTimeout(() => void synced().catch(() => {}), idleMs).unref();
    },
  };
}

/** The write-ahead log of a database; `sync` runs on another thread. */
export function walFile(databasePath: string) {
  let file: Promise<FileHandle> | undefined;

  function forget(): void {
    file?.then((opened) => opened.close()).catch(() => {});
    file = undefined;
  }

  return {
    /** @throws LibsqlError SQLITE_IOERR. */
    async sync(): Promise<void> {
      try {
        file ??= open(`${databasePath}-wal`);
        await (await file).datasync();
      } catch (error) {
        forget();
        const { code } = error as NodeJS.ErrnoException;
        // The last connection that closes copies the log into the database and removes the log.
        if (code === "ENOENT") return;
        const text = `the last writes may not be on disk: ${code}`;
        throw new LibsqlError(text, "SQLITE_IOERR", undefined, undefined, error as Error);
      }
    },
    /** Closes the file, since the next connection may make a new one. A running sync ends first. */
    forget,
  };
}
