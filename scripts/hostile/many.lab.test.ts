import { describe, expect, test } from "vitest";
import { type HostWatch, watchHost } from "../../agent/sandbox/testing/watch-host.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

/** One of each kind; what they come to is the other tests' concern. */
const kinds: Record<string, string> = {
  "never ends": "while True: pass",
  "ignores SIGTERM":
    "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(9)",
  "hides processes":
    "import os, time\nfor _ in range(20):\n    if os.fork() == 0: os.setsid(); time.sleep(600)",
  "forks without end": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
  "takes all memory": "x = []\nwhile True: x.append(bytearray(1 << 20))",
  "dies of a signal": "import os; os.kill(os.getpid(), 11)",
  "signals everyone":
    "import os\nfor pid in (1, -1):\n    try: os.kill(pid, 9)\n    except OSError: pass",
  "fills its folders":
    "for folder in ('/tmp', '/output', '/dev/shm'):\n    try:\n        with open(folder + '/x', 'wb') as f:\n            while True: f.write(b'x' * (1 << 20))\n    except OSError: pass",
  "floods its output": "import os\nfor _ in range(100): os.write(1, b'x' * (1 << 20))",
  "forges frames":
    "import os\nfor fd in range(1, 4096):\n    try: os.write(fd, b'X\\0\\0\\0\\2{}')\n    except OSError: pass",
  "leaves traps":
    "import os\nos.symlink('/', 'root'); os.mkfifo('result.json')\nfor i in range(300): open('f%d' % i, 'w').write('x')",
  "closes everything": "import os; os.closerange(0, 4096)",
};

describe.each(["runc", "runsc"])("under %s", (runtime) => {
  test("a hundred hostile jobs in a row leave descriptors, memory, containers, mounts and processes as before", async () => {
    await using service = await startTestService({
      api: {
        AIRLOCK_MAX_QUEUE_SIZE: "200",
        AIRLOCK_JOB_TYPES: JSON.stringify({ default: { memory_limit: "96m" } }),
      },
    });
    const agent = await service.startAgent("agent", {
      AIRLOCK_CONTAINER_RUNTIME: runtime,
      AIRLOCK_WARM_POOL_SIZE: "",
    });
    let watch: HostWatch | undefined;
    try {
      // The heap has its size only after some of each.
      await runAll(service, 3);
      watch = await watchHost(agent.name, agent.process.pid);
      await runAll(service, Math.ceil(100 / Object.keys(kinds).length));
      expect(await service.execute("print('next')")).toMatchObject({ stdout: "next\n" });
      await watch.isFlat();
      agent.process.kill("SIGTERM");
      expect(await agent.exit).toBe(0);
      // Only now, as a pool keeps containers ready.
      await watch.isClean();
    } finally {
      watch?.close();
    }
  }, 600_000);
});

/** Runs each kind some times, as many at once as the agent takes. */
async function runAll(service: TestService, times: number): Promise<void> {
  const all = Array.from({ length: times }, () => Object.entries(kinds)).flat();
  const jobs = await Promise.all(
    all.map(async ([kind, code]) => {
      return { kind, id: await service.submit(code, {}, { timeout: 1 }) };
    }),
  );
  const broken: unknown[] = [];
  for (const { kind, id } of jobs) {
    const { json } = await service.send("GET", `/jobs/${id}/result?wait=true&timeout=240`);
    const { error } = json as { error?: { type: string } };
    if (["internal_error", "docker_error", "unknown"].includes(error?.type ?? ""))
      broken.push([kind, error]);
  }
  expect(broken).toEqual([]);
}
