import { readFileSync } from "node:fs";
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
  return loadConfig(readToml(AIRLOCK_CONFIG), env);
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
