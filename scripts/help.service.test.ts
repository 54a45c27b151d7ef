import { execFile } from "node:child_process";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { programArgs } from "../shared/testing/program.ts";
import manifest from "../package.json" with { type: "json" };
import { tempFolder } from "../shared/testing/temp-folder.ts";

const run = promisify(execFile);
/** No help: check, docs and format have no options, and a test would run this again where it fails. */
const left = /^(check|docs|format|test.*)$/;
const entries = Object.entries(manifest.scripts).filter(([name]) => !left.test(name));

const folder = tempFolder();

/** The entry point behind an npm script, with its data where only a mistake would put any. */
function start(script: string, args: string[]) {
  const entry = /scripts\/run (\S+)$/.exec(script)?.[1] ?? "";
  const env = { ...process.env, AIRLOCK_DATA_DIR: join(folder, "data"), AIRLOCK_PORT: "0" };
  return run(process.execPath, [...programArgs(entry), ...args], { env, timeout: 240_000 });
}

test.concurrent.each(entries)(
  "npm run %s says how to use it, and does nothing else",
  async (name, script) => {
    const { stdout } = await start(script, ["--help"]);
    // The command line is also a program of its own.
    const usages: Record<string, string> = { start: "npm start", airlock: "airlock" };
    expect(stdout).toContain(`Usage: ${usages[name] ?? `npm run ${name}`}`);
    expect(await readdir(folder)).toEqual([]);
  },
);

test.concurrent.each([
  "api",
  "agent",
  "agents",
  "migrate",
  "backup",
  "restore",
  "setup",
  "soak",
] as const)("npm run %s refuses an argument that it does not know", async (name) => {
  const refused = start(manifest.scripts[name], ["--nonesuch"]);
  await expect(refused).rejects.toThrow(/--nonesuch[^]*--nonesuch[^]*-- --help/);
  expect(await readdir(folder)).toEqual([]);
});
