import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ensureScienceImage } from "../../scripts/setup/derived-images.ts";
import { backend, sandboxRuntime as runtime } from "../testing/backend.ts";
import { testEngine } from "../testing/engine.ts";
import { counts } from "../testing/python-rows.ts";
import { imageWithModules, rawEngine, removeImages } from "../testing/raw-engine.ts";
import { runCode, type Settings } from "../testing/run-code.ts";

describe("usage", async () => {
  /** Each program uses a known amount of time and memory; the reported usage must agree with it. */

  const MiB = 1024 * 1024;

  const place = await testEngine();

  /** `burn` uses CPU time in this thread; `tell` prints what this process has used since it began. */
  const head = `
import os, signal, sys, threading, time
began = time.process_time()
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
def tell():
    os.write(1, b"%d %f\\n" % (os.getpid(), time.process_time() - began))
def child():
    global began
    pid = os.fork()
    began = 0 if pid == 0 else began
    return pid == 0
def until(path):
    while not os.path.exists(path): time.sleep(0.01)
`;

  const programs: Record<string, string> = {
    "one process": `burn(0.5); tell()`,
    threads: `
threads = [threading.Thread(target=burn, args=(0.1,)) for _ in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell()`,
    "children that are waited for": `
for _ in range(2):
    if child(): burn(0.25); tell(); os._exit(0)
for _ in range(2): os.wait()
tell()`,
    "a child that nobody waits for": `
if child(): burn(0.5); tell(); open("/tmp/done", "w"); os._exit(0)
until("/tmp/done"); tell()`,
    "an orphan in a session of its own": `
if child():
    os.setsid()
    if child(): burn(0.5); tell(); open("/tmp/done", "w")
    os._exit(0)
until("/tmp/done"); tell()`,
    "a child that outlives the code": `
if child():
    while True: burn(0.01); tell(); time.process_time() > 0.5 and open("/tmp/done", "w")
until("/tmp/done"); tell()`,
    "a child of one that outlives the code": `
if child():
    if child(): burn(0.5); tell(); os._exit(0)
    os.wait(); open("/tmp/done", "w"); time.sleep(100)
until("/tmp/done"); tell()`,
  };

  /** How many threads of a program can run at once; 2 if it is not listed. */
  const widths: Record<string, number> = { "one process": 1, threads: 5 };

  const hidden = `
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if child(): burn(0.5); tell(); os._exit(0)
try: os.wait()
except ChildProcessError: tell()`;

  /** Each has a process of 100 MiB. */
  const holders: Record<string, string> = {
    "the code itself": `x = bytearray(100 << 20)`,
    "memory that is free again": `x = bytearray(100 << 20); del x; time.sleep(0.1)`,
    "a child that is waited for": `
if os.fork() == 0: x = bytearray(100 << 20); os._exit(0)
os.wait()`,
    "a child that outlives the code": `
if os.fork() == 0: x = bytearray(100 << 20); open("/tmp/done", "w"); time.sleep(100)
while not os.path.exists("/tmp/done"): time.sleep(0.01)`,
    "two at once": `
for _ in range(2):
    if os.fork() == 0: x = bytearray(100 << 20); time.sleep(0.2); os._exit(0)
for _ in range(2): os.wait()`,
    "files in /tmp are not a process's": `
x = bytearray(100 << 20)
for _ in range(4): open("/tmp/x", "ab").write(memoryview(x)[: 10 << 20])`,
  };

  /** Runs code; with what it printed: of each process its last word of seconds, added up. */
  async function burnt(code: string, settings: Settings = {}) {
    const calledMs = performance.now();
    const { report, out, err } = await runCode(place, head + code, {
      spec: { runtime, cpus: 2 },
      ...settings,
    });
    expect(err).toBe("");
    const words = out
      .trim()
      .split("\n")
      .map((line) => line.split(" "));
    const byProcess = new Map(words.map(([pid, seconds]) => [pid, 1000 * Number(seconds)]));
    const toldMs = [...byProcess.values()].reduce((sum, ms) => sum + ms, 0);
    const { cpuTimeMs, wallTimeMs } = report.usage!;
    const outsideMs = performance.now() - calledMs;
    return { toldMs, cpuTimeMs, wallTimeMs, executionMs: report.executionMs, outsideMs };
  }

  type Burnt = Awaited<ReturnType<typeof burnt>>;

  /** Peak memory of code in MiB. */
  async function peak(code: string): Promise<number> {
    const { report, end } = await runCode(place, code, {
      spec: { runtime, memoryBytes: 512 * MiB },
    });
    expect(end).toBe("succeeded - 0");
    return report.usage!.maxRssBytes / MiB;
  }

  const { moreMs, sleepS } =
    runtime === "runsc"
      ? // Its clock counts ticks of 10 ms at which a process could run, whether or not the host let it.
        { moreMs: 150, sleepS: 6 }
      : // For what a process does after it has printed its own measurement.
        { moreMs: 50, sleepS: 0.7 };

  describe(`under ${runtime}`, () => {
    /** @param width Threads that can run at once: the ticks of gVisor count each, as long as it lasts. */
    function miscount({ cpuTimeMs, toldMs, wallTimeMs }: Burnt, width: number): object | null {
      const mostMs = runtime === "runsc" ? Math.max(toldMs, width * wallTimeMs) : toldMs;
      const isRight = cpuTimeMs > 0.95 * toldMs - 50 && cpuTimeMs < 1.05 * mostMs + moreMs;
      return isRight ? null : { cpuTimeMs, toldMs, wallTimeMs };
    }

    test.each(Object.entries(programs))("the CPU time of %s is counted", async (who, code) => {
      const run = await burnt(code);
      expect(miscount(run, widths[who] ?? 2)).toBeNull();
    });

    test("with a cgroup, so is that of a child of code that ignores SIGCHLD", async () => {
      const run = await burnt(hidden);
      const isMissing = run.cpuTimeMs < 0.95 * run.toldMs - 50;
      // Older versions of gVisor lose it, Debian 12's for one; Debian 13's counts it.
      const mayMiss = runtime === "runsc" && isMissing;
      expect({ isMiscounted: miscount(run, 2) !== null, isMissing }).toEqual({
        isMiscounted: mayMiss,
        isMissing: mayMiss,
      });
    });

    test("so is that of code that reaches its time limit", async () => {
      const code = "while True: burn(0.01); tell()";
      const run = await burnt(code, { job: { timeoutMs: 1500 } });
      expect(miscount(run, 1)).toBeNull();
      expect(run.executionMs).toBeGreaterThanOrEqual(1500);
    });

    test("time asleep counts as time, but not as CPU time", async () => {
      const code = `
began = time.monotonic()
time.sleep(${sleepS})
print(1, time.monotonic() - began)`;
      const run = await burnt(code);
      expect(run.cpuTimeMs).toBeLessThan(run.toldMs / 2);
      expect(run.wallTimeMs).toBe(run.executionMs);
      expect(run.executionMs).toBeGreaterThanOrEqual(run.toldMs);
      expect(run.executionMs).toBeLessThan(run.outsideMs);
    });

    test("memory is the peak of the largest process", async () => {
      const idle = await peak("");
      const wrong: Record<string, number> = {};
      for (const [who, code] of Object.entries(holders)) {
        const held = (await peak(`import os, time\n${code}`)) - idle;
        if (held < 94 || held > 104) wrong[who] = held;
      }
      expect(wrong).toEqual({});
    });
  });
});

describe("cpu count", () => {
  /** How many CPUs a job takes itself to have, on a machine that has more. */

  let place: Awaited<ReturnType<typeof testEngine>>;
  let science: string;
  beforeAll(async () => {
    place = await testEngine();
    science = await ensureScienceImage(rawEngine);
  }, 300_000);

  /** Prints the threads that this process has once it has multiplied matrices. */
  const multiply = `
import os, numpy
matrix = numpy.random.default_rng(1).random((600, 600))
for _ in range(3): matrix @ matrix
print(len(os.listdir("/proc/self/task")))
`;

  describe(`under ${runtime}`, () => {
    test.each([
      [0.5, 1],
      [1, 1],
      [1.5, 2],
    ])("a limit of %d CPUs is counted as %d", async (cpus, count) => {
      const { out } = await runCode(place, counts, { spec: { runtime, cpus } });
      expect(out).toBe(`${`${count} `.repeat(5).trim()}\n`);
    });

    test("numpy starts no more threads than the limit has CPUs, though the machine has more", async () => {
      const spec = { image: science, runtime, cpus: 1 };
      expect((await runCode(place, multiply, { spec })).out).toBe("1\n");
      const env = { OPENBLAS_NUM_THREADS: "2", OMP_NUM_THREADS: "2" };
      expect((await runCode(place, multiply, { spec: { ...spec, env } })).out).toBe("2\n");
    });

    test("the memory limit can be read from the cgroup, or from /proc if there is none", async () => {
      const code = `
import os
for path in "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes":
    if os.path.exists(path): print(open(path).read())
total = int(open("/proc/meminfo").readline().split()[1]) * 1024
print(total if total < 1 << 30 else "")`;
      const { out } = await runCode(place, code, { spec: { runtime, memoryBytes: 256 << 20 } });
      // gVisor's own share comes on top.
      const seen = { runc: 256, runsc: 288 }[runtime];
      expect(Number(out.trim()) / 2 ** 20).toBe(seen);
    });
  });
});

describe("randomness", async () => {
  const science = await ensureScienceImage(rawEngine);
  const image = await imageWithModules(science, {
    // Generators that a module makes during its import, and those that are the same after each import.
    generators: `
import random, numpy as np
rng, legacy, sequence = np.random.default_rng(), np.random.RandomState(), np.random.SeedSequence()
child, other = np.random.default_rng(sequence.spawn(1)[0]), np.random.Generator(np.random.MT19937())
legacy.standard_normal()
class Client: random = random.Random()
given = [np.random.default_rng(5), np.random.RandomState(5), np.random.default_rng(2**120), random.Random(5)]`,
  });
  afterAll(() => removeImages(image));

  const preload = ["numpy", "random", "ssl", "tempfile", "uuid", "generators"];
  const code = `
import os, random, ssl, tempfile, uuid
import numpy as np
print(hash("text"), id(object()), random.random(), os.urandom(8), ssl.RAND_bytes(8), uuid.uuid4(), tempfile.mktemp(),
    np.random.rand(), np.random.default_rng().random(), sep="\\n")
import generators as g
print(*[each.random() for each in (g.rng, g.legacy, g.child, g.other, g.Client.random)], g.legacy.standard_normal(), sep="\\n")
print(g.sequence.entropy, g.sequence.spawn(1)[0].generate_state(1), np.random.default_rng(g.sequence).random(), sep="\\n")
print(*[each.random() for each in g.given])`;

  test(`under ${runtime} hash seeds, addresses and random numbers differ between two warm containers`, async () => {
    const place = await testEngine();
    const spec = { runtime, image, preload, memoryBytes: 512 * 1024 ** 2 };
    const runs = [0, 1].map(() => runCode(place, code, { spec }));
    const lines = (await Promise.all(runs)).flatMap(({ out }) => out.trim().split("\n"));
    expect(lines).toHaveLength(38);
    const given = "0.8050029237453802 0.22199317108973948 0.2831303208031627 0.6229016948897019";
    expect(lines.filter((line) => line === given)).toHaveLength(2);
    // Forks of one zygote share its hash seed and the layout of its memory (SECURITY.md).
    const shared = backend === "zygote" ? 2 : 0;
    expect(new Set(lines).size).toBe(37 - shared);
  });
});
