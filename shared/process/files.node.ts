import { chmodSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { parse, TomlError } from "smol-toml";
import { type Config, ConfigError, loadConfig } from "../config/config.ts";
import { describeError } from "../log-line.ts";

/**
 * Loads the configuration from the environment and from a file; the environment wins. The file is the
 * one that AIRLOCK_CONFIG names, else airlock.toml in the working directory.
 *
 * @throws ConfigError with one line per fault.
 */
export function readConfig({ AIRLOCK_CONFIG, ...env }: NodeJS.ProcessEnv): Config {
  const folder = dirname(AIRLOCK_CONFIG || "airlock.toml");
  const readText = (name: string): string => readFileSync(resolve(folder, name), "utf8");
  return loadConfig(readToml(AIRLOCK_CONFIG), env, readText);
}

function readToml(path: string | undefined): Record<string, unknown> {
  const file = path || "airlock.toml";
  try {
    return parse(readFileSync(file, "utf8"));
  } catch (error) {
    if (!path && (error as NodeJS.ErrnoException).code === "ENOENT") return {};
    throw new ConfigError(
      error instanceof TomlError ? describeToml(file, error) : `${file}: ${describeError(error)}`,
    );
  }
}

/** Drops the lines of the file that the parser's message quotes: they may contain keys. */
function describeToml(file: string, { line, column, message }: TomlError): string {
  const [reason = ""] = message.replace("Invalid TOML document: ", "").split("\n");
  return `${file}, line ${line}, column ${column}: ${reason}`;
}

/**
 * Makes a folder and its missing parents, readable by this user only. Node's own `recursive` option
 * loops forever below an existing folder in which none can be made, for example /proc.
 *
 * @throws ConfigError in that case; else the system's error.
 */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && isFolder(path)) return;
    if (code !== "ENOENT") throw error;
    const parent = dirname(path);
    if (isFolder(parent)) {
      throw new ConfigError(`cannot make ${path}: ${parent} accepts no folders`);
    }
    makeFolder(parent);
    makeFolder(path);
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** Rights of a group and of others. */
const others = 0o077;
/** A folder such as /tmp is for everybody. */
const sticky = 0o1000;

/**
 * Takes the rights of other users from these files and folders, as far as they exist and this process may.
 * A sticky folder stays as it is.
 * Returns those that were open.
 */
export function closeToOthers(paths: readonly string[]): string[] {
  return paths.filter((path) => {
    const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
    if ((mode & others) === 0 || (mode & sticky) !== 0) return false;
    try {
      chmodSync(path, mode & 0o7777 & ~others);
    } catch {
      // Another user's: its owner decides.
      return false;
    }
    return true;
  });
}
