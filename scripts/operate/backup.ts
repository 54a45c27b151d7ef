import { existsSync } from "node:fs";
import { chmod, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Client } from "@libsql/client";
import { artifactKey, fileKey } from "../../api/files/rules.ts";
import { version } from "../../api/version.ts";
import type { Config } from "../../shared/config/config.ts";
import { closeToOthers, makeFolder } from "../../shared/process/files.node.ts";
import {
  backupPlaces,
  checkIntegrity,
  copyDurably,
  countRows,
  type Manifest,
  placesOf,
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
  await makeEmpty(folder);
  const created_at = new Date().toISOString();
  await withDatabase(from.database, (client) =>
    client.execute({ sql: "VACUUM INTO ?", args: [to.database] }),
  );
  await chmod(to.database, 0o600);
  await sync(to.database);
  return withDatabase(to.database, async (snapshot) => {
    await checkIntegrity(snapshot, to.database);
    const { copied, missing } = await copyArtifacts(snapshot, from.artifacts, to.artifacts);
    const executions = await countRows(snapshot, "executions");
    const manifest = { version, created_at, executions, artifacts: copied };
    await writeFile(to.manifest, `${JSON.stringify(manifest, null, 2)}\n`, { mode: 0o600 });
    await sync(to.manifest);
    await sync(folder);
    return { manifest, missing };
  });
}

async function makeEmpty(folder: string): Promise<void> {
  makeFolder(folder);
  closeToOthers([folder]);
  if ((await readdir(folder)).length > 0) {
    throw new OperatorError(`${folder} is not empty: name a new folder for the backup`);
  }
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

const command = "npm run backup";
const help = `Usage: ${command} -- <new folder>

Copies the configured service's database and artifacts into a folder that does not exist or is empty, while
the service runs. \`npm run restore\` brings them back. docs/guides/operating.md says what is in it.
`;

/** `npm run backup -- <folder>`: the configured service's database and artifacts, while it runs. */
await runMain(async () => {
  const args = readArguments(command, help);
  if (!args) return;
  const [folder, ...rest] = args;
  if (folder === undefined || rest.length > 0) throw wrongArguments("name one new folder", command);
  const { manifest, missing } = await backUp(readConfig(process.env), folder);
  for (const key of missing)
    say(`the artifact ${key} has lost its bytes, and is not in the backup`);
  say(`${manifest.executions} executions and ${manifest.artifacts} artifacts are in ${folder}`);
});
