import { getLogger } from "@logtape/logtape";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { tmpdir } from "node:os";
import type { Forks } from "../fork/forks.ts";
import { topImports } from "../fork/top-imports.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { imageWithModules, removeImages } from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";
import { createPoolWorld } from "../testing/pool-world.ts";
import { systemClock } from "../waiting/clock.ts";
import { chooseSandbox } from "./choose-sandbox.ts";

const slow = "import os, time; time.sleep(0.05); born_in = os.getpid()";
const never = new AbortController().signal;

let image: string;
let forks: Forks;
let source: SandboxSource;
beforeAll(async () => {
  const place = await testEngine();
  image = await imageWithModules(place.image, {
    slowly: slow,
    threaded: `${slow}\nimport threading\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()`,
  });
  forks = startForks(place);
  source = chooseSandbox({
    containers: createPoolWorld(0).pool,
    forks,
    mustFork: true,
    slots: 2,
    idleMs: 0,
    clock: systemClock,
    log: getLogger("test"),
  });
});
afterAll(async () => {
  await source.close();
  await removeImages();
});

async function run(code: string): Promise<string> {
  const request = { jobType: "default", spec: specWith({ image }), packages: null, files: [] };
  const sandbox = await source.acquire({ ...request, imports: topImports(code) }, never);
  const caps = { streamBytes: 10_000, artifactBytes: 0 };
  const job = { code, inputJson: "{}", timeoutMs: 60_000, caps };
  const { stdout, stderr } = await sandbox.run(job, { signal: never, spoolDir: tmpdir() });
  await source.giveBack(sandbox);
  return Buffer.concat([stdout, stderr]).toString();
}

test("a module that jobs import again and again is imported ahead for them, and for no others", async () => {
  const code = "import slowly\nimport os\nprint(slowly.born_in == os.getpid())";
  const found = [await run(code), await run(code), await run(code)];
  expect(found).toEqual(["True\n", "True\n", "True\n"]);
  await vi.waitFor(async () => expect(await run(code)).toBe("False\n"), {
    timeout: 60_000,
    interval: 10,
  });
  expect(await run("import sys\nprint('slowly' in sys.modules)")).toBe("False\n");
});

test("jobs whose import cannot be shared go on without it", async () => {
  const code = "import threaded\nimport os\nprint(threaded.born_in == os.getpid())";
  for (let n = 0; n < 8; n++) expect(await run(code)).toBe("True\n");
});
