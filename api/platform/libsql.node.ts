import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { createClient, type Client } from "@libsql/client";
import { drizzle } from "drizzle-orm/libsql";
import { migrate } from "drizzle-orm/libsql/migrator";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { type Config, ConfigError } from "../../shared/config/config.ts";
import { describeError } from "../../shared/log-line.ts";
import { boundedFetch, remoteTimeoutMs } from "./bounded-fetch.ts";
import { fileClient, pathOf } from "./sqlite/file-client.node.ts";
import { makeFolder } from "../../shared/process/make-folder.node.ts";

const migrationsFolder = fileURLToPath(new URL("../store/migrations", import.meta.url));

const addressOf = ({ database_url, data_dir }: Config): string =>
  database_url ?? `file:${resolve(data_dir, "airlock.db")}`;

/** What may be on this host of code, input and output: data folder, database with its journals, artifacts. */
export function storedPaths(config: Config): string[] {
  const url = addressOf(config);
  const database = url.startsWith("file:") ? pathOf(url) : undefined;
  const files = database === undefined ? [] : [database, `${database}-wal`, `${database}-shm`];
  return [config.data_dir, ...files, join(config.data_dir, "artifacts")];
}

/**
 * Opens the configured database and brings its schema up to date.
 *
 * @throws ConfigError that names the folder or the database that cannot be used.
 */
export async function openDatabase(config: Config): Promise<Client> {
  const url = addressOf(config);
  const isFile = url.startsWith("file:");
  if (isFile) makeDataFolder(config.data_dir);
  try {
    if (isFile) return await migrated(fileClient(url));
    const { database_auth_token: token } = config;
    // Migrating a long history may take longer than the time limit of requests.
    (await migrated(remoteClient(url, token, {}))).close();
    return remoteClient(url, token, { fetch: boundedFetch(remoteTimeoutMs) });
  } catch (cause) {
    const text = `cannot open the database ${url}: ${describeError(cause)}`;
    throw new ConfigError(withoutSecrets(text), { cause });
  }
}

/** Several processes may start at once: if another one has migrated, the second attempt finds nothing to do. */
async function migrated(client: Client): Promise<Client> {
  await refuseOtherVersion(client);
  const once = () => migrate(drizzle(client), { migrationsFolder });
  await once().catch(once);
  return client;
}

/** @throws ConfigError when the schema has an unknown migration: of a newer version, or of a development version. */
async function refuseOtherVersion(client: Client): Promise<void> {
  const table = "__drizzle_migrations";
  const made = await client.execute(`SELECT 1 FROM sqlite_master WHERE name = '${table}'`);
  if (made.rows.length === 0) return;
  const { rows } = await client.execute(`SELECT hash FROM ${table}`);
  const known = new Set(readMigrationFiles({ migrationsFolder }).map(({ hash }) => hash));
  if (rows.every((row) => known.has(row["hash"] as string))) return;
  throw new Error(
    "another version of Airlock made it. Use that version (it can also back it up), " +
      "or begin anew with an empty database (AIRLOCK_DATA_DIR or AIRLOCK_DATABASE_URL)",
  );
}

function remoteClient(
  url: string,
  authToken: string | undefined,
  options: { fetch?: (request: Request) => Promise<Response> },
): Client {
  return createClient({ url, ...options, ...(authToken !== undefined && { authToken }) });
}

function makeDataFolder(path: string): void {
  try {
    makeFolder(path);
  } catch (cause) {
    const reason = describeError(cause);
    throw new ConfigError(`cannot use the data folder ${path} (AIRLOCK_DATA_DIR): ${reason}`, {
      cause,
    });
  }
}

/** Removes user, password and token from an address. */
function withoutSecrets(text: string): string {
  return text.replaceAll(/\/\/[^/\s]*@/g, "//").replaceAll(/\?[^\s:]*/g, "");
}
