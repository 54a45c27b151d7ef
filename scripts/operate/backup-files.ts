import { constants, readFileSync } from "node:fs";
import { chmod, copyFile, open } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type Client, createClient } from "@libsql/client";
import { z } from "zod";
import type { Config } from "../../shared/config/config.ts";
import { makeFolder } from "../../shared/process/files.node.ts";
import { Timestamp } from "../../shared/wire/fields.ts";
import { OperatorError } from "./command.ts";

/** Where a service keeps its state. */
interface Places {
  database: string;
  artifacts: string;
}

/** @throws OperatorError where the database is no file: its server has its own backups. */
export function placesOf({ data_dir, database_url }: Config): Places {
  const url = database_url ?? `file:${resolve(data_dir, "airlock.db")}`;
  if (!url.startsWith("file:")) {
    throw new OperatorError(
      "the database is on a libSQL server: back it up there, and copy the artifacts afterwards",
    );
  }
  const path = url.slice("file:".length);
  return {
    database: path.startsWith("//") ? fileURLToPath(url) : resolve(path),
    artifacts: join(data_dir, "artifacts"),
  };
}

/** What a backup's folder holds. */
export function backupPlaces(folder: string): Places & { manifest: string } {
  return {
    database: join(folder, "airlock.db"),
    artifacts: join(folder, "artifacts"),
    manifest: join(folder, "backup.json"),
  };
}

/** What a backup is; written last, so that a folder without it is no whole backup. */
export const Manifest = z.object({
  version: z.string(),
  created_at: Timestamp,
  executions: z.int(),
  artifacts: z.int(),
});
export type Manifest = z.infer<typeof Manifest>;

/** @throws OperatorError where the backup never came to its end. */
export function readManifest(path: string): Manifest {
  try {
    return Manifest.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch (cause) {
    throw new OperatorError(`no whole backup is there: ${path} is missing or is no manifest`, {
      cause,
    });
  }
}

/** Uses a connection of its own to a database file, beside those of a service that runs. */
export async function withDatabase<T>(
  path: string,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const client = createClient({ url: `file:${path}`, concurrency: 1, timeout: 10_000 });
  try {
    return await use(client);
  } finally {
    client.close();
  }
}

/** @throws OperatorError naming what is broken. */
export async function checkIntegrity(client: Client, path: string): Promise<void> {
  const { rows } = await client.execute("PRAGMA integrity_check");
  const found = rows.map((row) => row[0] as string).join("; ");
  if (found !== "ok") throw new OperatorError(`the database ${path} is damaged: ${found}`);
}

export async function countRows(client: Client, table: string): Promise<number> {
  const { rows } = await client.execute(`SELECT count(*) FROM ${table}`);
  return Number(rows[0]?.[0]);
}

/** Copies a file, without doubling its blocks where the file system can, and has it on disk. */
export async function copyDurably(from: string, to: string): Promise<void> {
  makeFolder(dirname(to));
  await copyFile(from, to, constants.COPYFILE_FICLONE);
  await chmod(to, 0o600);
  await sync(to);
}

/** Brings a file, or the names in a folder, to disk. */
export async function sync(path: string): Promise<void> {
  const file = await open(path);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
