import { writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { beforeEach, expect, it } from "vitest";
import { tempFolder } from "../shared/testing/test-file.ts";
import { writeCredentials } from "./client/http.ts";
import { configHelp, readAgentConfig } from "./config.ts";

const AIRLOCK_AGENT_TOKEN = "a-token-of-16-characters";
const joined = { api_url: "https://api.example", name: "gpu-1", token: `ala_${"0".repeat(64)}` };
let folder: string;
let AIRLOCK_CONFIG: string;

beforeEach(async () => {
  folder = tempFolder();
  AIRLOCK_CONFIG = join(folder, "airlock.toml");
  await writeFile(AIRLOCK_CONFIG, "max_workers = 2\ndrain_grace_s = 1.5\n");
});

it("reads the file that AIRLOCK_CONFIG names; the environment takes precedence", () => {
  const env = { AIRLOCK_CONFIG, AIRLOCK_AGENT_TOKEN, AIRLOCK_MAX_WORKERS: "7" };
  const config = readAgentConfig(env);
  expect(config.token.current()).toBe(AIRLOCK_AGENT_TOKEN);
  expect(config).toMatchObject({
    name: hostname(),
    slots: 7,
    drainGraceMs: 1500,
    runtime: { runtime: null, strict: false },
    seccomp: true,
  });
});

it.each([
  ["its own token, name and API", {}, [joined.token, joined.name, joined.api_url]],
  [
    "a configured token instead",
    { AIRLOCK_AGENT_TOKEN },
    [AIRLOCK_AGENT_TOKEN, hostname(), "http://127.0.0.1:8080"],
  ],
])("a host that has joined uses %s", (_what, env, expected) => {
  writeCredentials(folder, joined, "joined");
  const config = readAgentConfig({ AIRLOCK_CONFIG, AIRLOCK_DATA_DIR: folder, ...env });
  expect([config.token.current(), config.name, config.api.url]).toEqual(expected);
});

it.each([
  [{}, { runtime: null, strict: false }],
  [{ AIRLOCK_CONTAINER_RUNTIME: "runsc" }, { runtime: "runsc", strict: false }],
  [{ AIRLOCK_SECURITY_MODE: "strict" }, { runtime: "runsc", strict: true }],
])("turns %o into the choice of runtime %o", (env, runtime) => {
  expect(readAgentConfig({ AIRLOCK_CONFIG, AIRLOCK_AGENT_TOKEN, ...env }).runtime).toEqual(runtime);
});

it("has its spool folder in data_dir, where no other user may make one", () => {
  const env = { AIRLOCK_CONFIG, AIRLOCK_AGENT_TOKEN, AIRLOCK_DATA_DIR: folder };
  expect(readAgentConfig(env).spoolDir).toBe(join(folder, "spool"));
  const elsewhere = { ...env, AIRLOCK_SPOOL_DIR: "/var/tmp" };
  expect(readAgentConfig(elsewhere).spoolDir).toBe("/var/tmp");
});

it("reads what the operator accepts; lists comma-separated or JSON", () => {
  const env = {
    AIRLOCK_AGENT_IMAGES: "python:3.13-slim, airlock-*",
    AIRLOCK_AGENT_NETWORKS: '["none"]',
    AIRLOCK_AGENT_MAX_MEMORY: "2g",
    AIRLOCK_AGENT_MAX_CPUS: "1.5",
    AIRLOCK_AGENT_BUILDS: "false",
  };
  expect(readAgentConfig({ AIRLOCK_CONFIG, AIRLOCK_AGENT_TOKEN, ...env }).policy).toMatchObject({
    agent_images: ["python:3.13-slim", "airlock-*"],
    agent_networks: ["none"],
    agent_max_memory: "2g",
    agent_max_cpus: 1.5,
    agent_builds: false,
  });
});

it.each([
  [{}, /^AIRLOCK_AGENT_TOKEN is not set: /],
  [{ AIRLOCK_AGENT_TOKEN: "short" }, /^agent_token = \(secret\): must be at least 16 characters$/],
  [{ AIRLOCK_AGENT_TOKEN, AIRLOCK_MAX_WORKERS: "0" }, /^max_workers = 0: /],
  [{ AIRLOCK_AGENT_TOKEN, AIRLOCK_NO_SUCH: "1" }, /^unknown configuration key: no_such/],
  [
    { AIRLOCK_AGENT_TOKEN, AIRLOCK_SECURITY_MODE: "strict", AIRLOCK_CONTAINER_RUNTIME: "runc" },
    /^container_runtime = "runc": security_mode strict requires runsc/,
  ],
  [
    {
      AIRLOCK_AGENT_TOKEN,
      AIRLOCK_IMAGE_REGISTRY_PASSWORD: "p",
      AIRLOCK_IMAGE_REGISTRY: "r.example",
    },
    /^set image_registry, image_registry_username and image_registry_password together/,
  ],
])("refuses %o", (env, message) => {
  expect(() => readAgentConfig({ AIRLOCK_CONFIG, ...env })).toThrowError(message);
});

it("refuses a file that is missing or not TOML, and names it", async () => {
  const missing = join(folder, "other.toml");
  expect(() => readAgentConfig({ AIRLOCK_CONFIG: missing })).toThrowError(`${missing}: ENOENT`);
  await writeFile(AIRLOCK_CONFIG, "max_workers =");
  expect(() => readAgentConfig({ AIRLOCK_CONFIG })).toThrowError(`${AIRLOCK_CONFIG}, line 1, `);
});

it("describes every variable it reads", () => {
  for (const line of configHelp().split("\n")) expect(line).toMatch(/^ {2}AIRLOCK_\w+ +\w/);
});
