import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, watch } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, test } from "vitest";
import { openSandbox } from "../../backends/containers.ts";
import { specWith } from "../../testing/engine.ts";
import { hostileCases } from "../../testing/hostile.ts";
import { rawEngine } from "../../testing/raw-engine.ts";
import { runIn } from "../../testing/run-code.ts";
import { labels, type Sandbox } from "../sandbox.ts";
import type { RunReport } from "../verdict.ts";

const allocate = "x = []\nwhile True: x.append(bytearray(1_000_000))";
const spec = { memoryBytes: 64 * 1024 * 1024 };

hostileCases(({ run, isGvisor }) => {
  test("hostile 5: allocates past the limit", async () => {
    // Under gVisor the supervisor dies with the code: give it time to pass on what was printed.
    const pause = isGvisor ? "import time; time.sleep(3)" : "";
    const { end, out } = await run(`print("before")\n${pause}\n${allocate}`, { spec });
    expect({ end, out }).toEqual({ end: "oom oom 137", out: "before\n" });
  });

  test("hostile 6: a child runs out of memory, and its parent ends well", async () => {
    const code = `import subprocess, sys\nprint(subprocess.run([sys.executable, "-c", """${allocate}"""]).returncode)`;
    const { end, out } = await run(code, { spec });
    // gVisor is a single process to the kernel that kills: all of the job goes.
    const gvisor = { end: "oom oom 137", out: "" };
    expect({ end, out }).toEqual(isGvisor ? gvisor : { end: "succeeded - 0", out: "-9\n" });
  });

  // gVisor shows no control group, so the code cannot know how much is left. There, the whole job ends as oom.
  test.each(isGvisor ? [] : [64, 256, 512])(
    "hostile 65: memory that outlives the code, up to %s KiB below the limit",
    async (leftKiB) => {
      const code = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
groups = "/sys/fs/cgroup/memory" if os.path.exists("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"
used, most = (next(p for p in (groups + "/" + n for n in names) if os.path.exists(p)) for names in (
    ("memory.usage_in_bytes", "memory.current"), ("memory.limit_in_bytes", "memory.max")))
read = lambda path: int(open(path).read())
with open("/output/result.json", "w") as file: file.write('{"kept": 1}')
with open("/output/a.txt", "w") as file: file.write("kept")
size = read(most) - read(used) - (6 << 20)
segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
ctypes.memset(libc.shmat(segment, None, 0), 1, size)
# dd takes little memory itself, so what it leaves free is still free when it has ended.
os.execv("/bin/sh", ["sh", "-c", """
read most < %s
read used < %s
dd if=/dev/zero of=/dev/shm/x bs=4k count=$(( (most - used) / 4096 - ${leftKiB} / 4 - 16 )) 2>/dev/null
""" % (most, used)])`;
      const { end, files } = await run(code, { spec: { memoryBytes: 128 * 1024 * 1024 } });
      expect({ end, files }).toEqual({ end: "succeeded - 0", files: { "a.txt": "kept" } });
    },
  );

  describe("hostile 9: full folders", () => {
    test.each(["/tmp", "/output", "/dev/shm"])("%s", async (folder) => {
      const code = `
import os
file = os.open("${folder}/x", os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(file, b"x" * 1_000_000)
except OSError as e: print(e.strerror)`;
      const { end, out } = await run(code, { spec });
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "No space left on device\n" });
    });

    test("all three, with small files and with names", async () => {
      const code = `
import os
for folder in ("/tmp", "/output", "/dev/shm"):
    try:
        for i in range(200_000): os.close(os.open("%s/%0200d" % (folder, i), os.O_CREAT | os.O_WRONLY))
    except OSError as e: print(e.strerror)`;
      const { end } = await run(code, { spec: { memoryBytes: 128 * 1024 * 1024 } });
      // Names cost the kernel's memory, which the limit counts, and no space of the folder.
      expect(["succeeded - 0", "oom oom 137", "failed file_error 0"]).toContain(end);
    });

    test("all three, and memory too: the supervisor survives to report it", async () => {
      const code = `
import os
print("on")
for folder in ("/tmp", "/output", "/dev/shm"):
    try:
        f = os.open(folder + "/x", os.O_CREAT | os.O_WRONLY)
        while True: os.write(f, b"x" * 1_000_000)
    except OSError: pass
${allocate}`;
      const { end, out } = await run(code, { spec });
      expect({ end, out }).toEqual({ end: "oom oom 137", out: "on\n" });
    });
  });
});

hostileCases(({ run, isGvisor }) => {
  test("hostile 1: an endless loop keeps what it printed", async () => {
    const code = `print("partial", flush=True)\nwhile True: pass`;
    const { end, out } = await run(code, { job: { timeoutMs: 2000 } });
    expect({ end, out }).toEqual({ end: "timeout execution_timeout null", out: "partial\n" });
  });

  test("hostile 2: code that ignores SIGTERM is gone within the grace period", async () => {
    const code = `
import signal, time
for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)
print("on", flush=True)
while True: time.sleep(60)`;
    const { end, out, report } = await run(code, { job: { timeoutMs: 2000 } });
    expect({ end, out }).toEqual({ end: "timeout execution_timeout null", out: "on\n" });
    // The time, and the grace; not the 15 s more after which the agent would give it up.
    expect(report.executionMs).toBeGreaterThanOrEqual(2500);
    expect(report.executionMs).toBeLessThan(15_000);
  });

  test("hostile 3: processes that hide and keep streams open", async () => {
    const { end } = await run(`
import os, signal, time
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
        if os.fork() == 0: time.sleep(600)
        os._exit(0)`);
    expect(end).toBe("succeeded - 0");
  });

  describe("hostile 4: bombs", () => {
    test("a fork bomb", async () => {
      const code = `import os\nwhile True:\n    try: os.fork()\n    except OSError: pass`;
      // Under gVisor each process costs memory of the same limit, however long that takes.
      const { end } = await run(code, { job: { timeoutMs: isGvisor ? 60_000 : 1500 } });
      expect(end).toBe(isGvisor ? "oom oom 137" : "timeout execution_timeout null");
    });

    test("a fork bomb whose first process ends", async () => {
      const code = `
import os
if os.fork(): os._exit(0)
while True:
    try: os.fork()
    except OSError: pass`;
      expect((await run(code)).end).toBe("succeeded - 0");
    });

    test("a thread bomb", async () => {
      const code = `import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()`;
      expect((await run(code)).end).toBe("failed runtime_error 1");
    });
  });

  describe("hostile 10: signals to everyone", () => {
    test.each([1, -1])("kill(%i) does not reach the supervisor", async (pid) => {
      const { end, out } = await run(`
import os
try: os.kill(${pid}, 9)
except OSError as e: print(type(e).__name__)
print("alive")`);
      // The kernel lets kill(-1) spare the caller; gVisor's finds nobody else to signal.
      const refusal = pid === 1 ? "PermissionError\n" : "(PermissionError\n|ProcessLookupError\n)?";
      expect({ end, out }).toEqual({
        end: "succeeded - 0",
        out: expect.stringMatching(new RegExp(`^${refusal}alive\n$`)) as string,
      });
    });

    test("every signal at once, to every process and to the group", async () => {
      const { end } = await run(`
import os, signal
for number in signal.valid_signals():
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: continue  # KILL and STOP would end or stop this process too
    for pid in (1, 0, -1, -os.getpgid(0)):
        try: os.kill(pid, number)
        except OSError: pass
os._exit(7)`);
      expect(end).toBe("failed runtime_error 7");
    });

    test("a job that stops itself", async () => {
      const code = `import os, signal; os.kill(os.getpid(), signal.SIGSTOP)`;
      const { end } = await run(code, { job: { timeoutMs: 500 } });
      expect(end).toBe("timeout execution_timeout null");
    });
  });

  test("hostile 12: a daemon that keeps stdout open after its parent's end", async () => {
    const { end, out } = await run(`
import os, time
print("parent", flush=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)`);
    expect({ end, out }).toEqual({ end: "succeeded - 0", out: "parent\n" });
  });

  test("all descriptors closed, including the streams", async () => {
    const { end } = await run(`import os\nos.closerange(0, 4096)\nopen("x", "w").close()`);
    expect(end).toBe("succeeded - 0");
  });
});

const soon = (): AbortSignal => AbortSignal.timeout(60_000);

hostileCases(({ place, runtime, isGvisor, agentName }) => {
  const agentId = randomUUID();

  function open(cpus = 1): Promise<Sandbox> {
    const { engine, image } = place();
    const owner = { agentId, agentName, leaseId: null };
    return openSandbox(engine, specWith({ image, runtime, labels: owner, cpus }), soon());
  }

  const kill = (id: string): Promise<unknown> => rawEngine.getContainer(id).kill();

  /** Its first process on the host, whose end no busy engine puts off. */
  async function processOf({ containerId }: Sandbox): Promise<number> {
    return (await rawEngine.getContainer(containerId).inspect()).State.Pid;
  }

  /** Runs code whose container is killed by what `when` arranges. */
  async function killed(
    code: string,
    when: (die: () => void, spoolDir: string) => { onStarted?: () => void; onOutput?: () => void },
    timeoutMs = 60_000,
  ): Promise<RunReport> {
    const sandbox = await open();
    const spoolDir = mkdtempSync(join(tmpdir(), "airlock-dying-"));
    const pid = await processOf(sandbox);
    let isKilled = false;
    const die = (): void => {
      if (isKilled) return;
      isKilled = true;
      if (existsSync(`/proc/${pid}`)) process.kill(pid, "SIGKILL");
    };
    try {
      const caps = { streamBytes: 1_000_000, artifactBytes: 100_000_000 };
      const options = { spoolDir, ...when(die, spoolDir) };
      return await runIn(sandbox, code, { job: { timeoutMs, caps }, options });
    } finally {
      await sandbox.close();
      rmSync(spoolDir, { recursive: true });
    }
  }

  describe("a container that is killed", () => {
    test("before it is ready: no sandbox, and an error that allows a retry", async () => {
      const filters = { label: [`${labels.agentId}=${agentId}`], event: ["start"] };
      const events = await rawEngine.getEvents({ filters });
      const lines = createInterface({ input: events });
      const killing = once(lines, "line").then(([line]) =>
        kill((JSON.parse(line as string) as { id: string }).id),
      );
      // So slow that the kill comes before it is ready, however busy the machine is.
      const opening = open(isGvisor ? 0.05 : 0.02);
      await expect(opening).rejects.toMatchObject({ name: "EngineError", transient: true });
      await killing;
      (events as unknown as { destroy(): void }).destroy();
    });

    test("while it waits: this is noticed, and it gets no job", async () => {
      const sandbox = await open();
      try {
        await kill(sandbox.containerId);
        await expect(runIn(sandbox, "")).rejects.toMatchObject({
          name: "EngineError",
          transient: true,
        });
        expect(sandbox.died.aborted).toBe(true);
      } finally {
        await sandbox.close();
      }
    });

    test("as the code starts: the run is lost", async () => {
      const report = await killed("import time; time.sleep(60)", (die) => ({ onStarted: die }));
      expect(report).toMatchObject({ ending: "lost", started: true, outOfMemory: false });
    });

    test("while the code prints: what was printed is kept", async () => {
      const code = `import os\nwhile True: os.write(1, b"partial\\n" * 100)`;
      const report = await killed(code, (die) => ({ onOutput: die }));
      expect(report).toMatchObject({ ending: "lost", outOfMemory: false, usage: null });
      expect(Buffer.from(report.stdout).toString()).toMatch(/^(partial\n)+/);
    });

    test("in the grace period between SIGTERM and SIGKILL", async () => {
      const code = `
import os, signal, time
def last(*_):
    os.write(1, b"asked")
    while True: time.sleep(1)
signal.signal(signal.SIGTERM, last)
while True: time.sleep(1)`;
      const report = await killed(code, (die) => ({ onOutput: die }), 2000);
      // If the news of the output takes longer than the grace period, the supervisor has already reported the end.
      expect(["lost", "timeout"]).toContain(report.ending);
      expect(Buffer.from(report.stdout).toString()).toBe("asked");
    });

    test("while its files are collected: the code's end is known, and files that arrived are kept", async () => {
      const code = `
open("a", "w").write("first")
for i in range(60): open("big%02d" % i, "wb").truncate(1_000_000)`;
      const report = await killed(code, (die, spoolDir) => {
        const watcher = watch(spoolDir, () => {
          watcher.close();
          die();
        });
        return {};
      });
      expect(report).toMatchObject({
        ending: "exited",
        exitStatus: 0,
        lostReason: expect.any(String) as string,
      });
      expect(report.artifacts.length).toBeLessThan(61);
    });
  });
});
