import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { readConfig } from "../../shared/process/config-file.node.ts";
import { Config } from "../../shared/config/config.ts";
import { configurationFile, configurationText, exampleFile } from "./configuration.ts";

const text = readFileSync(configurationFile, "utf8");

test("docs/configuration.md is up to date with the schema (npm run docs writes it)", () => {
  expect(text).toBe(configurationText());
});

test("docs/configuration.md has every key with its variable, type, default and meaning", () => {
  expect(text).toContain(
    "| `port` | `AIRLOCK_PORT` | integer, 0 to 65535 | `8080` | Port the API listens on; 0 picks one. |",
  );
  for (const [key, schema] of Object.entries(Config.shape)) {
    expect(text).toContain(`| \`${key}\` | \`AIRLOCK_${key.toUpperCase()}\` |`);
    expect(text).toContain(schema.description?.replaceAll("<", "\\<"));
  }
});

test("docs/airlock.example.toml is accepted, with the values that it shows", () => {
  const config = readConfig({ AIRLOCK_CONFIG: exampleFile });
  expect(Object.keys(config.job_types)).toEqual(["default", "science", "train", "fetch"]);
  expect(config.job_types["train"]).toMatchObject({ gpus: 1, labels: { gpu: "a100" } });
  expect(config).toMatchObject({ max_timeout: 600, max_stdout_bytes: 4 * 1024 * 1024 });
});

/** The keys that docs/contract.md 3.1 promises. */
const contractKeys = `production_mode max_workers max_queue_size default_timeout max_timeout
  max_stdout_bytes max_artifact_bytes security_mode container_runtime api_auth_enabled api_keys
  api_auth_header allow_unauthenticated_network_access database_url api_rate_limit_enabled
  api_rate_limit_requests api_rate_limit_window_seconds max_request_bytes api_docs_public host port
  data_dir trusted_proxies base_image job_types enable_seccomp allow_runtime_requirements
  enable_runtime_dependency_cache`.split(/\s+/);

test("every key of the contract exists", () => {
  const keys = Object.keys(Config.shape);
  expect(contractKeys.filter((key) => !keys.includes(key))).toEqual([]);
});
