import { readFileSync } from "node:fs";
import { TomlError, parse } from "smol-toml";
import { Config, ConfigError, loadConfig } from "../shared/config.ts";
import { OperatorError } from "./operator-error.ts";

const CONFIG_FILE = "airlock.toml";

/** The configuration that the API and the agent will read too. Throws OperatorError. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  try {
    return loadConfig(parse(readText(CONFIG_FILE)), env);
  } catch (error) {
    if (error instanceof ConfigError || error instanceof TomlError) {
      throw new OperatorError(`the configuration is wrong: ${error.message}`, { cause: error });
    }
    throw error;
  }
}

/** Every configuration key with its meaning and default, one line each. */
export function describeKeys(): string {
  const defaults = Config.parse({}) as Record<string, unknown>;
  const keys = Object.entries(Config.shape).map(([key, schema]) => {
    const value = defaults[key];
    const shown = value === undefined ? "" : ` [${JSON.stringify(value)}]`;
    return `  ${key.padEnd(38)}${schema.description ?? ""}${shown}`;
  });
  return keys.join("\n");
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
