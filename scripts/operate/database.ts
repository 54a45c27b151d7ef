import { constants, existsSync, readFileSync } from "node:fs";
import { chmod, copyFile, open, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Client, createClient } from "@libsql/client";
import { z } from "zod";
import { artifactKey, fileKey } from "../../api/files/rules.ts";
import { databaseFile, openDatabase } from "../../api/platform/sqlite.node.ts";
import { version } from "../../api/version.ts";
import type { Config } from "../../shared/config/config.ts";
import { closeToOthers, makeFolder } from "../../shared/process/files.node.ts";
import { Timestamp } from "../../shared/wire/fields.ts";
import {
  OperatorError,
  readArguments,
  readConfig,
  runMain,
  say,
  wrongArguments,
} from "./command.ts";

/** Where a service keeps its state. */
interface Places {
  database: string;
  artifacts: string;
}

/** @throws OperatorError where the database is no file: its server has its own backups. */
function placesOf(config: Config): Places {
  const path = databaseFile(config);
  if (path === undefined) {
    throw new OperatorError(
      "the database is on a libSQL server: back it up there, and copy the artifacts afterwards",
    );
  }
  return { database: resolve(path), artifacts: join(config.data_dir, "artifacts") };
}

/** What a backup's folder holds. */
function backupPlaces(folder: string): Places & { manifest: string } {
  return {
    database: join(folder, "airlock.db"),
    artifacts: join(folder, "artifacts"),
    manifest: join(folder, "backup.json"),
  };
}

/** What a backup is; written last, so that a folder without it is no whole backup. */
const Manifest = z.object({
  version: z.string(),
  created_at: Timestamp,
  executions: z.int(),
  artifacts: z.int(),
});
type Manifest = z.infer<typeof Manifest>;

interface BackedUp {
  manifest: Manifest;
  /** Artifacts of the database whose bytes were not there, by their keys. */
  missing: string[];
}

/**
 * Copies a service's state into a new folder, while the service runs or not: everything that was
 * acknowledged before this began. First the database, as it is at one instant, then the artifacts
 * that it names: their bytes were there before their rows, and go an hour after them.
 *
 * @throws OperatorError where the folder is taken, or there is no database file, or it is damaged.
 */
async function backUp(config: Config, folder: string): Promise<BackedUp> {
  const from = placesOf(config);
  const to = backupPlaces(folder);
  if (!existsSync(from.database)) throw new OperatorError(`there is no database ${from.database}`);
  makeFolder(folder);
  closeToOthers([folder]);
  if ((await readdir(folder)).length > 0) {
    throw new OperatorError(`${folder} is not empty: name a new folder for the backup`);
  }
  const created_at = new Date().toISOString();
  await withDatabase(from.database, (client) =>
    client.execute({ sql: "VACUUM INTO ?", args: [to.database] }),
  );
  await chmod(to.database, 0o600);
  await sync(to.database);
  return withDatabase(to.database, async (snapshot) => {
    await checkIntegrity(snapshot, to.database);
    const { copied, missing } = await copyArtifacts(snapshot, from.artifacts, to.artifacts);
    const { rows } = await snapshot.execute("SELECT count(*) FROM executions");
    const manifest = { version, created_at, executions: Number(rows[0]?.[0]), artifacts: copied };
    await writeFile(to.manifest, `${JSON.stringify(manifest, null, 2)}\n`, { mode: 0o600 });
    await sync(to.manifest);
    await sync(folder);
    return { manifest, missing };
  });
}

async function copyArtifacts(snapshot: Client, from: string, to: string) {
  const missing: string[] = [];
  const seen = new Set<string>();
  for await (const { key, sizeBytes } of storedBytes(snapshot)) {
    if (seen.has(key)) continue;
    seen.add(key);
    const size = await stat(join(from, key)).then(
      (found) => found.size,
      () => undefined,
    );
    if (size === sizeBytes) await copyDurably(join(from, key), join(to, key));
    else missing.push(key);
  }
  return { copied: seen.size - missing.length, missing };
}

/** Everything in the artifact store that a database refers to. */
async function* storedBytes(client: Client): AsyncGenerator<{ key: string; sizeBytes: number }> {
  yield* artifactsOf(client);
  const uploaded = await client.execute("SELECT id, size_bytes FROM files");
  for (const { id, size_bytes } of uploaded.rows) {
    yield { key: fileKey({ id: id as string }), sizeBytes: Number(size_bytes) };
  }
  const referred = await client.execute(
    "SELECT DISTINCT store_key, size_bytes FROM input_files WHERE store_key IS NOT NULL",
  );
  for (const { store_key, size_bytes } of referred.rows) {
    yield { key: store_key as string, sizeBytes: Number(size_bytes) };
  }
}

/** Every artifact of a database, also those of executions that run. */
async function* artifactsOf(client: Client): AsyncGenerator<{ key: string; sizeBytes: number }> {
  const sql = `SELECT rowid, execution_id, lease_id, sha256, size_bytes FROM artifacts
    WHERE rowid > ? ORDER BY rowid LIMIT 1000`;
  for (let last = 0; ;) {
    const { rows } = await client.execute({ sql, args: [last] });
    if (rows.length === 0) return;
    for (const row of rows) {
      last = Number(row["rowid"]);
      const [executionId, leaseId, sha256] = [row["execution_id"], row["lease_id"], row["sha256"]];
      const key = artifactKey({ executionId, leaseId, sha256 } as Parameters<
        typeof artifactKey
      >[0]);
      yield { key, sizeBytes: Number(row["size_bytes"]) };
    }
  }
}

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

/** @throws OperatorError where the backup never came to its end. */
function readManifest(path: string): Manifest {
  try {
    return Manifest.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch (cause) {
    throw new OperatorError(`no whole backup is there: ${path} is missing or is no manifest`, {
      cause,
    });
  }
}

async function* filesIn(folder: string): AsyncGenerator<string> {
  if (!existsSync(folder)) return;
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesIn(path);
    else yield path;
  }
}

/** Uses a connection of its own to a database file, beside those of a service that runs. */
async function withDatabase<T>(path: string, use: (client: Client) => Promise<T>): Promise<T> {
  const client = createClient({ url: pathToFileURL(path).href, concurrency: 1, timeout: 10_000 });
  try {
    return await use(client);
  } finally {
    client.close();
  }
}

/** @throws OperatorError naming what is broken. */
async function checkIntegrity(client: Client, path: string): Promise<void> {
  const { rows } = await client.execute("PRAGMA integrity_check");
  const found = rows.map((row) => row[0] as string).join("; ");
  if (found !== "ok") throw new OperatorError(`the database ${path} is damaged: ${found}`);
}

/** Copies a file, without doubling its blocks where the file system can, and has it on disk. */
async function copyDurably(from: string, to: string): Promise<void> {
  makeFolder(dirname(to));
  await copyFile(from, to, constants.COPYFILE_FICLONE);
  await chmod(to, 0o600);
  await sync(to);
}

/** Brings a file, or the names in a folder, to disk. */
async function sync(path: string): Promise<void> {
  const file = await open(path);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

type Command = {
  readonly help: string;
  /** The one argument that it takes, as a refusal asks for it. */
  readonly asks?: string;
  readonly run: (config: Config, argument: string) => Promise<void>;
};

/** What npm runs of this file, by its first argument: `npm run backup` and the others. */
const commands: Readonly<Record<string, Command>> = {
  migrate: {
    help: `Usage: npm run migrate

Brings the schema of the configured database (AIRLOCK_DATABASE_URL, AIRLOCK_DATABASE_AUTH_TOKEN) up to date.
The API on Node does so itself at each start; a worker cannot: run this before \`npx wrangler deploy\`.
`,
    async run(config) {
      const client = await openDatabase(config);
      client.close();
      say("the database schema is up to date");
    },
  },
  backup: {
    help: `Usage: npm run backup -- <new folder>

Copies the configured service's database and artifacts into a folder that does not exist or is empty, while
the service runs. \`npm run restore\` brings them back. docs/guides/operating.md says what is in it.
`,
    asks: "name one new folder",
    async run(config, folder) {
      const { manifest, missing } = await backUp(config, folder);
      for (const key of missing)
        say(`the artifact ${key} has lost its bytes, and is not in the backup`);
      say(`${manifest.executions} executions and ${manifest.artifacts} artifacts are in ${folder}`);
    },
  },
  restore: {
    help: `Usage: npm run restore -- <folder of a backup>

Brings a backup back into the configured data_dir, which must hold no database yet. Start the service after it.
`,
    asks: "name a backup's folder",
    async run(config, folder) {
      const { executions, artifacts, created_at } = await restore(config, folder);
      say(`${executions} executions and ${artifacts} artifacts are back, as of ${created_at}`);
    },
  },
};

await runMain(async () => {
  const name = process.argv[2]!;
  const { help, asks, run } = commands[name]!;
  const args = readArguments(`npm run ${name}`, help);
  if (!args) return;
  const [, argument = "", ...rest] = args;
  if ((asks !== undefined) !== (argument !== "") || rest.length > 0) {
    throw wrongArguments(asks ?? "it takes no arguments", `npm run ${name}`);
  }
  await run(readConfig(process.env), argument);
});
