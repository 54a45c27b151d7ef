import { readFileSync } from "node:fs";
import { parse, TomlError } from "smol-toml";
import { type Config, ConfigError, loadConfig } from "../config/config.ts";
import { describeError } from "../log-line.ts";

/**
 * The configuration from the environment over airlock.toml in the working directory, or over the
 * file that AIRLOCK_CONFIG names.
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

/** Without the lines of the file that the parser's message quotes: they may hold keys. */
function describeToml(file: string, { line, column, message }: TomlError): string {
  const [reason = ""] = message.replace("Invalid TOML document: ", "").split("\n");
  return `${file}, line ${line}, column ${column}: ${reason}`;
}
