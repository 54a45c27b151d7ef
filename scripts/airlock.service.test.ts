import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

test("npm run airlock takes paths from the folder where the person stands", () => {
  const args = ["run", "-s", "airlock", "--", "batch", "run"];
  const { status, stderr } = spawnSync("npm", args, { cwd: "scripts", encoding: "utf8" });
  // scripts/run was read, and is no batch.
  expect(stderr).toContain("line 1 is not JSON");
  expect(status).toBe(2);
});
