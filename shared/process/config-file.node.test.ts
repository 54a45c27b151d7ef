import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ConfigError } from "../config/config.ts";
import { readConfig } from "./config-file.node.ts";
import { tempFolder } from "../testing/temp-folder.ts";

const folder = tempFolder();

function fileWith(toml: string): string {
  const path = join(folder, "airlock.toml");
  writeFileSync(path, toml);
  return path;
}

test("the environment wins over the file that AIRLOCK_CONFIG names", () => {
  const AIRLOCK_CONFIG = fileWith('port = 1\nhost = "127.0.0.2"\n[job_types.ml]\ncpu_limit = 2');
  const config = readConfig({ AIRLOCK_CONFIG, AIRLOCK_PORT: "2" });
  expect([config.port, config.host, config.job_types["ml"]?.cpu_limit]).toEqual([
    2,
    "127.0.0.2",
    2,
  ]);
});

test("a missing file that AIRLOCK_CONFIG names is an error; without AIRLOCK_CONFIG the file is optional", () => {
  const AIRLOCK_CONFIG = join(folder, "missing.toml");
  expect(() => readConfig({ AIRLOCK_CONFIG })).toThrow(ConfigError);
  expect(() => readConfig({ AIRLOCK_CONFIG })).toThrow(`${AIRLOCK_CONFIG}: ENOENT`);
  expect(readConfig({ AIRLOCK_CONFIG: "" }).port).toBe(8080);
});

test("the message about malformed TOML is one line that gives the position and not the text", () => {
  const AIRLOCK_CONFIG = fileWith('port = 1\napi_keys = ["hunter2-hunter2-hunter2"\nhost = 1');
  const message = refusal({ AIRLOCK_CONFIG });
  expect(message).toMatch(/airlock\.toml, line \d, column \d+: [a-z ]+/);
  expect(message.split("\n")).toHaveLength(1);
  expect(message).not.toContain("hunter2");
});

function refusal(env: NodeJS.ProcessEnv): string {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error("the configuration was accepted");
}
