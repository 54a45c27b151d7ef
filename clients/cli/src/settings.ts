import { chmodSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import {
  checkKey,
  checkTenant,
  checkUrl as checkUrlItself,
} from "../../typescript/src/transport/check-options.ts";
import { UsageError } from "./exit.ts";
import { makeFolder } from "./make-folder.ts";

/** Where the service is, and the key for it. */
export interface Settings {
  url: string;
  key?: string | undefined;
  /** Whose records the command is about, if not those of the key. It is never stored. */
  tenant?: string | undefined;
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
  const file = settingsFile(env);
  const given = { url: flags.url ?? (env["AIRLOCK_URL"] || undefined), key: givenKey(flags, env) };
  // A file that cannot be used is an error only for commands that need it.
  const isWhole = given.url !== undefined && given.key !== undefined;
  const stored = isWhole ? {} : readStored(file, replaces);
  const url = checkUrl(given.url ?? stored.url ?? defaultUrl);
  // A stored key is for the stored address: another service must not get it.
  const key = given.key ?? (stored.url && sameOrigin(url, stored.url) ? stored.key : undefined);
  const { tenant } = flags;
  refusing(() => {
    checkKey(key);
    checkTenant(tenant);
  });
  return { url, key, tenant };
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
  try {
    writeFileSync(temporary, `${JSON.stringify(settings, null, 2)}\n`, { mode: 0o600 });
    chmodSync(temporary, 0o600);
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw new UsageError(`${file} cannot be written: ${(error as Error).message}`);
  }
  return file;
}

function readStored(file: string, replaces: boolean): Partial<Settings> {
  try {
    return asStored(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (replaces || code === "ENOENT" || code === "ENOTDIR") return {};
    throw new UsageError(
      `${file} cannot be used: ${message}\nRemove it, or run airlock login again.`,
    );
  }
}

function asStored(value: unknown): Partial<Settings> {
  const { url, key } = (value ?? {}) as Record<string, unknown>;
  if (typeof url === "string" && (key === undefined || typeof key === "string")) {
    checkKey(key);
    return { url: checkUrlItself(url), key };
  }
  throw new Error('it must have the form {"url": "http://host:port", "key": "…"}');
}

export function checkUrl(text: string): string {
  return refusing(() => checkUrlItself(text));
}

function refusing<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function sameOrigin(a: string, b: string): boolean {
  return URL.parse(a)?.origin === URL.parse(b)?.origin;
}
