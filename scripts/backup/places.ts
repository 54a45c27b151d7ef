import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Config } from "../../shared/config/config.ts";
import { OperatorError } from "../command/operator-error.ts";

/** Where a service keeps its state. */
export interface Places {
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
