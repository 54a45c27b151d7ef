import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import manifest from "../package.json" with { type: "json" };
import { tempFolder } from "../shared/testing/temp-folder.ts";

test("SIGTERM to npm stops the service, not only the shell between them", async () => {
  const dataDir = tempFolder();
  const npm = spawn("npm", ["run", "api"], {
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, AIRLOCK_PORT: "0", AIRLOCK_DATA_DIR: dataDir },
  });
  onTestFinished(() => {
    try {
      process.kill(-npm.pid!, "SIGKILL");
    } catch {} // All of its group has ended.
  });
  let said = "";
  npm.stderr.on("data", (chunk: Buffer) => {
    said += chunk.toString();
    if (said.includes("listening on") && !npm.killed) npm.kill("SIGTERM");
  });
  // Its output is closed once nobody holds it any more.
  await once(npm, "close");
  expect(said).toMatch(/listening on [^]* stopping/);
});

test.each(["start", "api", "agent", "airlock"] as const)(
  "npm run %s leaves no shell in between",
  (name) => {
    expect(manifest.scripts[name]).toMatch(/^exec sh scripts\/run /);
  },
);
