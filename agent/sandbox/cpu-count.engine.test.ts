import { beforeAll, describe, expect, test } from "vitest";
import { ensureScienceImage } from "../../scripts/setup/images/science-image.ts";
import { sandboxRuntime as runtime } from "./testing/backend.ts";
import { testEngine } from "./testing/engine.ts";
import { rawEngine } from "./testing/raw-engine.ts";
import { runCode } from "./testing/run-code.ts";
import { counts } from "./testing/cpu-count-row.ts";

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
