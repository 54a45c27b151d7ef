import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, expect, test } from "vitest";
import { connect } from "../setup/engine/connect.ts";
import { ensureEngine } from "../setup/engine/ensure-engine.ts";
import { postJson, startAirlock } from "../testing/start-airlock.ts";
import type { StartProcess } from "../testing/start-process.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

let dataDir: string;
let running: StartProcess | undefined;

beforeEach(() => {
  dataDir = tempFolder();
});
afterEach(async () => {
  running?.signal("SIGTERM");
  await running?.exited;
});

test("builds the image of the default job type if it needs one", async () => {
  const prefix = `airlock-test-${randomUUID()}`;
  const env = {
    AIRLOCK_DATA_DIR: dataDir,
    AIRLOCK_PRODUCTION_MODE: "true",
    AIRLOCK_IMAGE_PREFIX: prefix,
  };
  const image = connect(
    (await ensureEngine(process.env["AIRLOCK_DOCKER_HOST"])).dockerHost,
  ).getImage(`${prefix}-default:latest`);
  for (let starts = 0; starts < 2; starts++) {
    const { airlock, url } = await startAirlock(env, (started) => (running = started));
    expect(airlock.output()).toContain("building the image of the default job type");
    expect(await postJson(`${url}/execute`, { code: "print(1)" })).toMatchObject({ stdout: "1\n" });
    airlock.signal("SIGTERM");
    await airlock.exited;
    // Gone at the next start, which makes it anew.
    await image.remove();
  }
});
