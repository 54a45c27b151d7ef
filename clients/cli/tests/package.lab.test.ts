import { execFile } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
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

test("npm pack's package installs the command airlock in an empty folder", async () => {
  await run("npm", ["pack", "--ignore-scripts=false", "--pack-destination", folder], {
    cwd: "clients/cli",
  });
  rmSync("clients/cli/dist", { recursive: true });
  const [archive] = readdirSync(folder);
  await run("npm", ["install", "--no-audit", "--no-fund", `./${archive}`], { cwd: folder });
  const airlock = join(folder, "node_modules/.bin/airlock");
  const { stdout: version } = await run(airlock, ["--version"]);
  expect(version).toBe("0.1.0\n");
  const env = { ...process.env, XDG_CONFIG_HOME: folder, AIRLOCK_URL: api.url };
  const { stdout } = await run(airlock, ["--json", "ps"], { env });
  expect(JSON.parse(stdout)).toEqual([]);
});
