import { existsSync } from "node:fs";
import { readdir, rename, rm } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { Config } from "../../shared/config/config.ts";
import { closeToOthers, makeFolder } from "../../shared/process/files.node.ts";
import {
  backupPlaces,
  checkIntegrity,
  copyDurably,
  type Manifest,
  placesOf,
  readManifest,
  sync,
  withDatabase,
} from "./backup-files.ts";
import {
  OperatorError,
  readArguments,
  readConfig,
  runMain,
  say,
  wrongArguments,
} from "./command.ts";

/**
 * Makes a service's state from a backup, where there is none yet. The database comes last, under
 * its name once it is whole: a restore that broke off can be made again.
 *
 * @throws OperatorError where a database is there already, or the backup is not whole.
 */
async function restore(config: Config, folder: string): Promise<Manifest> {
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

const command = "npm run restore";
const help = `Usage: ${command} -- <folder of a backup>

Brings a backup back into the configured data_dir, which must hold no database yet. Start the service after it.
`;

/** `npm run restore -- <folder>`: a backup as the state of the configured service, which has none yet. */
await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  const [folder, ...rest] = args;
  if (folder === undefined || rest.length > 0) {
    throw wrongArguments("name a backup's folder", command);
  }
  const { executions, artifacts, created_at } = await restore(readConfig(process.env), folder);
  say(`${executions} executions and ${artifacts} artifacts are back, as of ${created_at}`);
});
