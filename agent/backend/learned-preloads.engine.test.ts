import { getLogger } from "@logtape/logtape";
import { afterAll, expect, test, vi } from "vitest";
import { tmpdir } from "node:os";
import { topImports } from "../fork/top-imports.ts";
import { startForks } from "../sandbox/testing/backend.ts";
import { testEngine } from "../sandbox/testing/engine.ts";
import { imageWithModules, removeImages } from "../sandbox/testing/raw-engine.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { createPoolWorld } from "../testing/pool-world.ts";
import { systemClock } from "../waiting/clock.ts";
import { chooseSandbox } from "./choose-sandbox.ts";

const slow = "import os, time; time.sleep(0.05); born_in = os.getpid()";
const never = new AbortController().signal;

const place = await testEngine();
const image = await imageWithModules(place.image, {
  slowly: slow,
  after_threaded: slow,
  after_writes: slow,
  writes: `${slow}\nopen("/tmp/written", "w").close()`,
  threaded: `${slow}\nimport threading\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()`,
});
const forks = startForks(place);
const source = chooseSandbox({
  containers: createPoolWorld(0).pool,
  forks,
  mustFork: true,
  slots: 2,
  idleMs: 0,
  clock: systemClock,
  log: getLogger("test"),
});
afterAll(async () => {
  await source.close();
  await removeImages();
});

async function run(code: string, tenant = "a"): Promise<string> {
  const request = {
    jobType: "default",
    tenant,
    spec: specWith({ image }),
    packages: null,
    files: [],
  };
  const sandbox = await source.acquire({ ...request, imports: topImports(code) }, never);
  const caps = { streamBytes: 10_000, artifactBytes: 0 };
  const job = { code, inputJson: "{}", timeoutMs: 60_000, caps };
  const { stdout, stderr } = await sandbox.run(job, { signal: never, spoolDir: tmpdir() });
  await source.giveBack(sandbox);
  return Buffer.concat([stdout, stderr]).toString();
}

const bornHere = (module: string): Promise<string> =>
  run(`import ${module}\nimport os\nprint(${module}.born_in == os.getpid())`);

/** Resolves when jobs find the module imported. */
async function untilLearned(module: string): Promise<void> {
  const learned = async () => expect(await bornHere(module)).toBe("False\n");
  await vi.waitFor(learned, { timeout: 60_000, interval: 10 });
}

test("a module that jobs import again and again is imported ahead for them, and for no others", async () => {
  const found = [await bornHere("slowly"), await bornHere("slowly"), await bornHere("slowly")];
  expect(found).toEqual(["True\n", "True\n", "True\n"]);
  await untilLearned("slowly");
  expect(await run("import sys\nprint('slowly' in sys.modules)")).toBe("False\n");
});

test.each([
  ["starts a thread", "threaded"],
  ["writes a file", "writes"],
])("jobs go on without an import that %s, which no fork would have", async (_what, module) => {
  for (let n = 0; n < 3; n++) expect(await bornHere(module)).toBe("True\n");
  // Modules are tried one after the other, so this one's turn comes when the first one has been tried.
  await untilLearned(`after_${module}`);
  expect(await bornHere(module)).toBe("True\n");
});
