import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { addRunsc, registerRunsc } from "./daemon-json.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

const runsc = { path: "/usr/bin/runsc", runtimeArgs: ["--network=none"] };
let dir: string;

beforeEach(() => {
  dir = tempFolder();
});

test.each([
  ["no file", undefined, { runtimes: { runsc } }],
  ["an empty file", "\n", { runtimes: { runsc } }],
  ["other settings", '{"debug":true}', { debug: true, runtimes: { runsc } }],
  ["another runtime", '{"runtimes":{"x":{}}}', { runtimes: { x: {}, runsc } }],
])("adds runsc to %s and keeps the rest", (_name, text, expected) => {
  expect(JSON.parse(addRunsc(text) ?? "")).toEqual(expected);
});

test("leaves a configured runsc alone", () => {
  expect(addRunsc('{"runtimes":{"runsc":{"path":"/opt/runsc"}}}')).toBeUndefined();
});

test("writes the file once", () => {
  const file = join(dir, "docker/daemon.json");
  expect(registerRunsc(file)).toBe(true);
  expect(registerRunsc(file)).toBe(false);
  expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({ runtimes: { runsc } });
});

test("refuses to touch a file that is not JSON", () => {
  const file = join(dir, "daemon.json");
  writeFileSync(file, "{oops");
  expect(() => registerRunsc(file)).toThrow("is not valid JSON");
  expect(readFileSync(file, "utf8")).toBe("{oops");
});
