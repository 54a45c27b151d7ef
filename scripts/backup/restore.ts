import { existsSync } from "node:fs";
import { readdir, rename, rm } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { closeToOthers } from "../../shared/process/close-to-others.node.ts";
import { makeFolder } from "../../shared/process/make-folder.node.ts";
import type { Config } from "../../shared/config/config.ts";
import { OperatorError } from "../command/operator-error.ts";
import { checkIntegrity, withDatabase } from "./database-file.ts";
import { copyDurably, sync } from "./durable.ts";
import { type Manifest, readManifest } from "./manifest.ts";
import { backupPlaces, placesOf } from "./places.ts";

/**
 * Makes a service's state from a backup, where there is none yet. The database comes last, under
 * its name once it is whole: a restore that broke off can be made again.
 *
 * @throws OperatorError where a database is there already, or the backup is not whole.
 */
export async function restore(config: Config, folder: string): Promise<Manifest> {
  const from = backupPlaces(folder);
  const to = placesOf(config);
  const manifest = readManifest(from.manifest);
  // A log that a database left behind would be played into the restored one.
  const taken = ["", "-wal", "-shm"].map((end) => to.database + end).find(existsSync);
  if (taken !== undefined) {
    throw new OperatorError(
      `${taken} is there already: stop the service and move its data away, or name another folder (AIRLOCK_DATA_DIR)`,
    );
  }
  makeFolder(config.data_dir);
  closeToOthers([config.data_dir]);
  for await (const path of filesIn(from.artifacts)) {
    await copyDurably(path, join(to.artifacts, relative(from.artifacts, path)));
  }
  const partial = `${to.database}.restoring`;
  makeFolder(dirname(partial));
  await rm(partial, { force: true });
  await copyDurably(from.database, partial);
  await withDatabase(partial, (client) => checkIntegrity(client, from.database));
  await rename(partial, to.database);
  await sync(dirname(to.database));
  return manifest;
}

async function* filesIn(folder: string): AsyncGenerator<string> {
  if (!existsSync(folder)) return;
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesIn(path);
    else yield path;
  }
}
