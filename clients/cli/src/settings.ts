import { chmodSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { checkUrl as checked } from "../../typescript/src/check-options.ts";
import { UsageError } from "./exit.ts";
import { makeFolder } from "./make-folder.ts";

/** Where the service is, and the key for it. */
export interface Settings {
  url: string;
  key?: string | undefined;
}

const defaultUrl = "http://127.0.0.1:8080";

export function settingsFile(env: NodeJS.ProcessEnv): string {
  const base = env["XDG_CONFIG_HOME"] || join(homedir(), ".config");
  return join(base, "airlock", "config.json");
}

/**
 * Address and key: from the flags, else from AIRLOCK_URL and AIRLOCK_KEY, else from the file. `replaces`: the
 * file is about to be written anew, so it may be broken.
 */
export function readSettings(
  flags: Partial<Settings>,
  env: NodeJS.ProcessEnv,
  replaces = false,
): Settings {
  const stored = readStored(settingsFile(env), replaces);
  const url = checkUrl(flags.url ?? (env["AIRLOCK_URL"] || stored.url || defaultUrl));
  // A stored key is for the stored address: another service must not get it.
  const key =
    givenKey(flags, env) ?? (stored.url && sameOrigin(url, stored.url) ? stored.key : undefined);
  return { url, key };
}

/** The key for this command, if it is not a stored one. */
export function givenKey({ key }: Partial<Settings>, env: NodeJS.ProcessEnv): string | undefined {
  return key ?? (env["AIRLOCK_KEY"] || undefined);
}

/** Stores address and key for later commands, readable by this user only. */
export function writeSettings(settings: Settings, env: NodeJS.ProcessEnv): string {
  const file = settingsFile(env);
  makeFolder(dirname(file), 0o700);
  const temporary = `${file}.${process.pid}`;
  writeFileSync(temporary, `${JSON.stringify(settings, null, 2)}\n`, { mode: 0o600 });
  chmodSync(temporary, 0o600);
  renameSync(temporary, file);
  return file;
}

function readStored(file: string, replaces: boolean): Partial<Settings> {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    return {};
  }
  try {
    const { url, key } = JSON.parse(text) as Record<string, unknown>;
    return {
      ...(typeof url === "string" && { url }),
      ...(typeof key === "string" && { key }),
    };
  } catch {
    if (replaces) return {};
    throw new UsageError(`${file} is not JSON: remove it, or run airlock login again`);
  }
}

export function checkUrl(text: string): string {
  try {
    return checked(text);
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function sameOrigin(a: string, b: string): boolean {
  return URL.parse(a)?.origin === URL.parse(b)?.origin;
}
