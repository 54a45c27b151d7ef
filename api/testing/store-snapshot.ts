import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync, truncateSync } from "node:fs";
import { appendFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@libsql/client";
import { database, type Database } from "../store/database.ts";
import { type FullExecution, withPayloads } from "../store/jobs/read.ts";
import { readQueueStats } from "../store/statistics/queue.ts";
import { deadLetters, executions } from "../store/schema.ts";
import { miscounted } from "./tenant-uses.ts";

/** On a file system in memory, if there is one: thousands of commits then need not wait for a disk. */
export const inMemory = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

/** Everything that a database has about its executions. */
export interface Snapshot {
  rows: (typeof executions.$inferSelect)[];
  /** Executions that have a dead letter, one entry per letter. */
  letters: string[];
  /** Its count of queued executions. */
  queued: number;
  /** Tenants whose counts are not those of the rows. */
  miscounted: unknown[];
  shown: Map<string, FullExecution>;
}

export async function snapshot(db: Database): Promise<Snapshot> {
  const rows = await db.orm.select().from(executions).orderBy(executions.seq);
  const letters = await db.orm.select({ id: deadLetters.executionId }).from(deadLetters);
  const { pending } = await readQueueStats(db);
  const { rows: wrong } = await db.client.execute(miscounted);
  const full = await withPayloads(db, rows);
  return {
    rows,
    letters: letters.map(({ id }) => id),
    queued: pending,
    miscounted: wrong,
    shown: new Map(full.map((one) => [one.execution.id, one])),
  };
}

/** What a start would find if only the first `bytes` of the write-ahead log had reached the disk. */
export async function afterPowerCut(
  dataFolder: string,
  bytes: number,
  garbage: boolean,
): Promise<Snapshot> {
  const folder = mkdtempSync(join(inMemory, "airlock-cut-"));
  try {
    copyFileSync(join(dataFolder, "airlock.db"), join(folder, "airlock.db"));
    if (existsSync(walOf(dataFolder))) {
      copyFileSync(walOf(dataFolder), walOf(folder));
      truncateSync(walOf(folder), Math.floor(Math.min(bytes, walBytes(dataFolder))));
      if (garbage) await appendFile(walOf(folder), Buffer.alloc(5000, 0xa5));
    }
    const client = createClient({ url: `file:${folder}/airlock.db` });
    const left = await snapshot(database(client));
    client.close();
    return left;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export function walBytes(dataFolder: string): number {
  return existsSync(walOf(dataFolder)) ? statSync(walOf(dataFolder)).size : 0;
}

function walOf(dataFolder: string): string {
  return join(dataFolder, "airlock.db-wal");
}
