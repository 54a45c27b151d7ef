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

/** Modules that are not learned, by what the import of each does that no fork would have or have for itself. */
const alone = {
  "starts a thread":
    "import threading\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()",
  "writes a file": 'open("/tmp/written", "w").close()',
  "makes shared memory": 'open("/dev/shm/written", "w").close()',
  "prints to stdout": 'print("Hello from the community.")',
  "writes to stderr": "os.write(2, b'careful')",
  "starts a process": "import subprocess\nchild = subprocess.Popen(['sleep', '60'])",
  "sets a timer": "import signal\nsignal.setitimer(signal.ITIMER_VIRTUAL, 60)",
  "waits for children": "import signal\nsignal.signal(signal.SIGCHLD, lambda *_: None)",
  "changes its folder": 'os.chdir("/tmp")',
  "makes a UUID": "import uuid\nid = uuid.uuid4()",
  "makes a token": "import secrets\ntoken = secrets.token_hex()",
  "draws a class attribute": "import random\nclass Client: id = random.random()",
  "draws from a generator that is gone": "import random\nid = random.Random().random()",
  "seeds the generator of all": "import random\nrandom.seed(7)",
};
const moduleOf = (what: string): string => what.replaceAll(" ", "_");

const never = new AbortController().signal;

const place = await testEngine();
const image = await imageWithModules(place.image, {
  slowly: slow,
  at_random: `${slow}
import random
class Client: random = random.Random()
own, given = random.Random(), random.Random(7)
own.random()
own.seed()`,
  ...Object.fromEntries(
    Object.entries(alone).flatMap(([what, does]) => [
      [moduleOf(what), `${slow}\n${does}`],
      [`after_${moduleOf(what)}`, slow],
    ]),
  ),
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

test("a learned module's generators are seeded anew in each fork, but for those that it has seeded with a number", async () => {
  await untilLearned("at_random");
  const code = `import at_random
import os
import random
print(at_random.born_in == os.getpid(), at_random.given.random(), at_random.own.random(), at_random.Client.random.random(), random.random())`;
  const drawn = [await run(code), await run(code)].map((out) => out.trim().split(" "));
  for (const [here, given] of drawn)
    expect([here, given]).toEqual(["False", "0.32383276483316237"]);
  expect(new Set(drawn.flatMap(([, , ...others]) => others)).size).toBe(6);
});

test.each(Object.keys(alone))("jobs go on importing themselves what %s", async (what) => {
  const module = moduleOf(what);
  for (let n = 0; n < 3; n++) expect(await bornHere(module)).toContain("True\n");
  // Modules are tried one after the other, so this one's turn comes when the first one has been tried.
  await untilLearned(`after_${module}`);
  expect(await bornHere(module)).toContain("True\n");
});
