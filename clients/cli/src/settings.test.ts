import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { UsageError } from "./exit.ts";
import { readSettings, settingsFile, writeSettings } from "./settings.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

let folder: string;
beforeEach(() => {
  folder = tempFolder();
});

const env = (more: Record<string, string> = {}) => ({ XDG_CONFIG_HOME: folder, ...more });
const stored = { url: "https://airlock.example", key: "stored-key" };

test("by default, the service is on this machine and needs no key", () => {
  expect(readSettings({}, env())).toEqual({ url: "http://127.0.0.1:8080", key: undefined });
});

test("a flag overrides the environment, which overrides the file", () => {
  writeSettings(stored, env());
  const set = env({ AIRLOCK_URL: "https://airlock.example/env", AIRLOCK_KEY: "env-key" });
  expect(readSettings({}, env())).toEqual(stored);
  expect(readSettings({}, set)).toEqual({ url: "https://airlock.example/env", key: "env-key" });
  expect(readSettings({ url: "http://a:1/", key: "flag-key" }, set)).toEqual({
    url: "http://a:1",
    key: "flag-key",
  });
});

test("a stored key is not sent to another service", () => {
  writeSettings(stored, env());
  expect(readSettings({ url: "https://other.example" }, env()).key).toBeUndefined();
  expect(readSettings({}, env({ AIRLOCK_URL: "http://airlock.example" })).key).toBeUndefined();
});

test("only the user can read the file", () => {
  const file = writeSettings(stored, env());
  expect(file).toBe(settingsFile(env()));
  expect(statSync(file).mode & 0o777).toBe(0o600);
});

test("a wrong address or key is refused", () => {
  expect(() => readSettings({ url: "localhost:8080" }, env())).toThrow("is not the address");
  const broken = { url: stored.url, key: "two\nlines" };
  expect(() => readSettings(broken, env())).toThrow(UsageError);
});

test.each([
  "{",
  "[]",
  "null",
  '{"url": 5}',
  '{"url": "ftp://x"}',
  '{"url": "http://x", "key": "two\\nlines"}',
])("a file with %s is refused with its name, and login replaces it", (text) => {
  const file = writeSettings(stored, env());
  writeFileSync(file, text);
  expect(() => readSettings({}, env())).toThrow(/config.json cannot be used: .*\n.*airlock login/);
  expect(readSettings({}, env(), true)).toEqual(readSettings({}, {}));
  expect(readSettings(stored, env())).toEqual(stored);
});

test("a file that cannot be read or written is refused with its name", () => {
  mkdirSync(settingsFile(env()), { recursive: true });
  expect(() => readSettings({}, env())).toThrow(/config.json cannot be used: EISDIR/);
  expect(() => writeSettings(stored, env())).toThrow(/config.json cannot be written: EISDIR/);
  expect(readdirSync(join(folder, "airlock"))).toEqual(["config.json"]);
});
