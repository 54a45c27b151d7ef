import {
  closeSync,
  fsyncSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { ConfigError } from "../../shared/config/config.ts";
import { AgentToken, HostName } from "../../shared/wire/agent/join.ts";
import { describeError } from "../../shared/log-line.ts";
import { makeFolder } from "../../shared/process/make-folder.node.ts";

/** What a host got by joining. */
export const Credentials = z.object({ api_url: z.url(), name: HostName, token: AgentToken });
export type Credentials = z.infer<typeof Credentials>;

/** In stages `joining` and `rotating` the file holds a token that the API may not know yet. */
type Stage = "joined" | "joining" | "rotating";

export function credentialsFile(dataDir: string, stage: Stage = "joined"): string {
  return join(dataDir, stage === "joined" ? "agent.json" : `agent.json.${stage}`);
}

/**
 * Reads the credentials from `data_dir`; undefined if the host has not joined.
 *
 * @throws ConfigError if the file cannot be used, or if other users can read it.
 */
export function readCredentials(dataDir: string, stage?: Stage): Credentials | undefined {
  const file = credentialsFile(dataDir, stage);
  try {
    const text = readFileSync(file, "utf8");
    if ((statSync(file).mode & 0o077) !== 0) throw new Error("others can read it: chmod 600 it");
    return Credentials.parse(parse(text));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    const reason =
      error instanceof z.ZodError ? "not in the format that join writes" : describeError(error);
    throw new ConfigError(`cannot use ${file}, the token that this host joined with: ${reason}`, {
      cause: error,
    });
  }
}

/** Writes the file atomically, readable by its owner only, and synced to disk. */
export function writeCredentials(dataDir: string, credentials: Credentials, stage: Stage): void {
  put(dataDir, draftOf(dataDir, credentials, stage), credentialsFile(dataDir, stage));
}

/** The same, unless there is the file: processes that do this at once get what the first of them wrote. */
export function proposeCredentials(
  dataDir: string,
  credentials: Credentials,
  stage: Stage,
): Credentials {
  const draft = draftOf(dataDir, credentials, stage);
  try {
    linkSync(draft, credentialsFile(dataDir, stage));
    syncFolder(dataDir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft);
  }
  // Another process may have removed it just now.
  return readCredentials(dataDir, stage) ?? proposeCredentials(dataDir, credentials, stage);
}

export function removeCredentials(dataDir: string, stage: Stage): void {
  rmSync(credentialsFile(dataDir, stage), { force: true });
}

function draftOf(dataDir: string, credentials: Credentials, stage: Stage): string {
  makeFolder(dataDir);
  const draft = `${credentialsFile(dataDir, stage)}.${process.pid}`;
  rmSync(draft, { force: true });
  writeFileSync(draft, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600, flush: true });
  return draft;
}

/** Makes the credentials of a stage the credentials of this host. */
export function adoptCredentials(dataDir: string, stage: Stage): void {
  put(dataDir, credentialsFile(dataDir, stage), credentialsFile(dataDir));
}

function put(dataDir: string, from: string, to: string): void {
  renameSync(from, to);
  syncFolder(dataDir);
}

function syncFolder(dataDir: string): void {
  const folder = openSync(dataDir, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
