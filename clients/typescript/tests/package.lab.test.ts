import { execFile } from "node:child_process";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startNode, type NodeProcess } from "../../../api/testing/start-node.ts";
import { tempFolder } from "../../../shared/testing/temp-folder.ts";

const run = promisify(execFile);
let folder: string;
let api: NodeProcess;
beforeAll(async () => {
  folder = tempFolder();
  api = await startNode();
});
afterAll(() => api.close());

/** A program of a user, in a project of its own. */
const program = `
import { connect, NotFoundError, type ExecutionRecord } from "airlock-exec";
const airlock = connect({ url: process.argv[2] });
const waiting: Promise<ExecutionRecord> = airlock.wait("00000000-0000-7000-8000-000000000000");
const error: unknown = await waiting.catch((caught: unknown) => caught);
console.log(error instanceof NotFoundError, (await airlock.api.getHealth()).version);
`;

test("npm pack's package works and type-checks in an empty folder", async () => {
  await run("npm", ["pack", "--ignore-scripts=false", "--pack-destination", folder], {
    cwd: "clients/typescript",
  });
  rmSync("clients/typescript/dist", { recursive: true });
  const [archive] = readdirSync(folder);
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  await run("npm", ["install", "--no-audit", "--no-fund", `./${archive}`], { cwd: folder });
  writeFileSync(join(folder, "program.ts"), program);
  const strict = ["--noEmit", "--strict", "--module", "nodenext", "--lib", "es2022,dom"];
  const types = ["--typeRoots", resolve("node_modules/@types"), "--types", "node"];
  await run(resolve("node_modules/.bin/tsc"), [...strict, ...types, "program.ts"], { cwd: folder });
  // Node 22.18 and newer run TypeScript.
  const { stdout } = await run("node", ["program.ts", api.url], { cwd: folder });
  expect(stdout).toBe("true 0.1.0\n");
});
