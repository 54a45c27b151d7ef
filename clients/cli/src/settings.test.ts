import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readSettings, settingsFile, writeSettings } from "./settings.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "airlock-cli-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

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

test("an invalid address and a broken file are refused with a message", () => {
  expect(() => readSettings({ url: "localhost:8080" }, env())).toThrow("is no address");
  writeSettings(stored, env());
  writeFileSync(settingsFile(env()), "{");
  expect(() => readSettings({}, env())).toThrow("airlock login");
  expect(readSettings({}, env(), true)).toEqual(readSettings({}, {}));
});
