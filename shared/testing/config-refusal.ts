import { ConfigError, loadConfig } from "../config/config.ts";

/** The message with which this configuration is refused. */
export function refusal(file: Record<string, unknown>, env: Record<string, string>): string {
  try {
    loadConfig(file, env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error("the configuration was accepted");
}
