import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { runTool, say } from "../operate/command.ts";
import { findCircles, findLongFiles, findWrongImports } from "./check-rooms.ts";
import { rooms } from "./rooms.ts";

type Check = { title: string; tool: string; args: string[]; remedy?: string };

const TSCONFIGS = [
  "tsconfig.json",
  "tsconfig.edge.json",
  "clients/typescript/tsconfig.json",
  "clients/console/tsconfig.json",
];

/** Runs every static check, prints what they found, and returns whether all passed. */
export async function runChecks(): Promise<boolean> {
  const results = await Promise.all(checks().map(runCheck));
  return [checkRooms(), ...results].every(Boolean);
}

/** Holds every import against the order of the rooms, and every file against the limit of its length. */
function checkRooms(): boolean {
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
    encoding: "utf8",
  });
  const files = listed.split("\n").filter((file) => existsSync(file));
  const found = [
    ...findWrongImports(rooms, files),
    ...findCircles(rooms, files),
    ...findLongFiles(files),
  ];
  if (found.length > 0) process.stdout.write(`${found.join("\n")}\n`);
  say(`rooms: ${found.length === 0 ? "passed" : "failed"}`);
  return found.length === 0;
}

function checks(): Check[] {
  return [
    { title: "format", tool: "oxfmt", args: ["--check", "."], remedy: "npm run format" },
    { title: "lint", tool: "oxlint", args: ["--deny-warnings", "."] },
    ...TSCONFIGS.filter((file) => existsSync(file)).map((file) => ({
      title: `types (${file})`,
      tool: "tsc",
      args: ["--project", file, "--incremental", "--tsBuildInfoFile", rememberedTypes(file)],
    })),
  ];
}

/** Where tsc keeps the hashes of what it has checked: then it checks only what has changed since. */
function rememberedTypes(tsconfig: string): string {
  return resolve("node_modules/.cache/tsc", `${tsconfig.replaceAll("/", "-")}.tsbuildinfo`);
}

async function runCheck({ title, tool, args, remedy }: Check): Promise<boolean> {
  const { ok, output } = await runTool(tool, args);
  if (!ok) process.stdout.write(`${output.trimEnd()}\n`);
  say(`${title}: ${ok ? "passed" : `failed${remedy ? ` (${remedy} mends it)` : ""}`}`);
  return ok;
}
