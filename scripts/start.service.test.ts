import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { programArgs } from "../shared/testing/program.ts";

test("npm start names a data folder that is a file, without a stack", () => {
  const env = { ...process.env, AIRLOCK_PORT: "0", AIRLOCK_DATA_DIR: "package.json" };
  const args = programArgs("scripts/start.ts");
  const { status, stderr } = spawnSync(process.execPath, args, { env, encoding: "utf8" });
  expect(stderr).toMatch(/^airlock: package\.json is or leads through a file, .*data_dir\n$/);
  expect(status).toBe(1);
});
