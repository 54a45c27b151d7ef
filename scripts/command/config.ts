import { Config, ConfigError } from "../../shared/config/config.ts";
import { readConfig as readSettings } from "../../shared/process/config-file.node.ts";
import { OperatorError } from "./operator-error.ts";

/** The configuration that the API and the agent read too. Throws OperatorError. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  try {
    return readSettings(env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new OperatorError(`the configuration is wrong: ${error.message}`, { cause: error });
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
