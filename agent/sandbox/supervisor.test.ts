import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { openSession } from "./session.ts";
import { supervisorCommand, supervisorProgram } from "./supervisor.ts";
import { type HostLink, type HostOptions, startOnHost } from "./testing/host-link.ts";
import { findPythons } from "./testing/pythons.ts";
import type { RunOptions, RunReport, SandboxJob } from "./types.ts";

const spoolRoot = mkdtempSync(join(tmpdir(), "airlock-supervisor-"));
afterAll(() => rmSync(spoolRoot, { recursive: true }));

const [python] = findPythons();
if (python === undefined) throw new Error("no Python");

const started: HostLink[] = [];
afterAll(() => started.forEach((link) => link.destroy()));

async function open(options: HostOptions = {}) {
  const link = startOnHost(python!, options);
  started.push(link);
  return { link, session: await openSession(link, AbortSignal.timeout(30_000)) };
}

interface Settings extends Partial<Omit<SandboxJob, "code" | "caps">>, HostOptions {
  readonly caps?: Partial<SandboxJob["caps"]>;
  readonly options?: Partial<RunOptions>;
}

async function run(code: string, settings: Settings = {}) {
  const { session } = await open(settings);
  const report = await session.run(
    {
      code,
      inputJson: settings.inputJson ?? "{}",
      timeoutMs: settings.timeoutMs ?? 20_000,
      caps: { streamBytes: 1_000_000, artifactBytes: 10_000_000, ...settings.caps },
    },
    {
      signal: new AbortController().signal,
      spoolDir: mkdtempSync(join(spoolRoot, "run-")),
      ...settings.options,
    },
  );
  return { ...report, out: text(report.stdout), err: text(report.stderr) };
}

/** Takes the interpreter over 100 ms of CPU time to import; its start takes 20 ms. */
const slowToImport = ["asyncio", "unittest.mock", "xmlrpc.server", "multiprocessing.pool"];

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("utf8");
}

function files({ artifacts }: RunReport): Record<string, string> {
  return Object.fromEntries(artifacts.map(({ name, path }) => [name, readFileSync(path, "utf8")]));
}

test("outside of a container of its own it refuses to start", () => {
  const [file = "", ...args] = supervisorCommand;
  const refused = spawnSync(file, args, { encoding: "utf8", input: supervisorProgram([], false) });
  expect(refused.status).toBe(1);
  expect(refused.stderr).toMatch(/^not PID 1/);
});

describe("the end of the code", () => {
  test("a timeout keeps the output and the files so far", async () => {
    const report = await run(
      `open("a.txt", "w").write("kept"); print("partial")\nwhile True: pass`,
      { timeoutMs: 1500 },
    );
    expect(report).toMatchObject({ ending: "timeout", exitSignal: "SIGTERM", out: "partial\n" });
    expect(files(report)).toEqual({ "a.txt": "kept" });
  });

  test("code that ignores SIGTERM is killed after a grace", async () => {
    const report = await run(
      `import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)`,
      { timeoutMs: 500 },
    );
    expect(report).toMatchObject({ ending: "timeout", exitStatus: null });
  });

  test("code that tidies up within the grace may do so, and still timed out", async () => {
    const report = await run(
      `import signal, sys, time
def tidy(*_):
    open("last.txt", "w").write("words")
    sys.exit(0)
signal.signal(signal.SIGTERM, tidy)
time.sleep(60)`,
      { timeoutMs: 1500 },
    );
    expect(report).toMatchObject({ ending: "timeout", exitStatus: 0 });
    expect(files(report)).toEqual({ "last.txt": "words" });
  });

  test("a cancel ends it and keeps what there is", async () => {
    const cancel = new AbortController();
    const report = await run(
      `import os, time\nopen("a.txt", "w").write("kept")\nos.write(1, b"here\\n")\ntime.sleep(60)`,
      { options: { signal: cancel.signal, onOutput: () => cancel.abort() } },
    );
    expect(report).toMatchObject({ ending: "cancelled", out: "here\n" });
    expect(files(report)).toEqual({ "a.txt": "kept" });
  });

  test("daemons that hold stdout and detach themselves do not outlive it", async () => {
    const { link, session } = await open();
    const report = await session.run(
      {
        code: `
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", flush=True)
        open("/tmp/up", "w").close()
        while True: time.sleep(60)
    os._exit(0)
while not os.path.exists("/tmp/up"): time.sleep(0.001)`,
        inputJson: "{}",
        timeoutMs: 20_000,
        caps: { streamBytes: 1000, artifactBytes: 1000 },
      },
      { signal: new AbortController().signal, spoolDir: spoolRoot },
    );
    expect(report).toMatchObject({ ending: "exited", exitStatus: 0 });
    expect(text(report.stdout)).toBe("daemon\n");
    await link.ended;
  });

  test("signals to everyone cannot reach the supervisor", async () => {
    const report = await run(`
import os, signal
for pid in (1, -1):
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGTERM):
        try: os.kill(pid, number)
        except OSError as e: print(type(e).__name__)
print("alive")`);
    expect(report).toMatchObject({ ending: "exited", exitStatus: 0 });
    expect(report.out).toMatch(/^(PermissionError\n){4}/);
    expect(report.out).toMatch(/alive\n$/);
  });

  test("the agent's end is the end of everything", async () => {
    const { link, session } = await open();
    const running = session.run(
      {
        code: `import time\nprint("on", flush=True)\ntime.sleep(60)`,
        inputJson: "{}",
        timeoutMs: 60_000,
        caps: { streamBytes: 1000, artifactBytes: 1000 },
      },
      {
        signal: new AbortController().signal,
        spoolDir: spoolRoot,
        onOutput: () => link.destroy(),
      },
    );
    expect(await running).toMatchObject({ ending: "lost", started: true });
    await link.ended;
  });

  test("time and memory are counted for the code and its children, not for the start", async () => {
    const report = await run(`
import subprocess, sys, time
subprocess.run([sys.executable, "-c", """
import time
x = b"x" * 60_000_000
while time.process_time() < 0.4: pass
"""])
time.sleep(0.2)`);
    const { cpuTimeMs = 0, wallTimeMs = 0, maxRssBytes = 0 } = report.usage ?? {};
    expect(cpuTimeMs).toBeGreaterThan(390);
    expect(cpuTimeMs).toBeLessThan(1000);
    expect(wallTimeMs).toBeGreaterThan(600);
    expect(maxRssBytes).toBeGreaterThan(60_000_000);
    expect(maxRssBytes).toBeLessThan(100_000_000);
    const idle = await run("", { preload: slowToImport });
    expect(idle.usage?.cpuTimeMs).toBeLessThan(60);
  });
});

describe("stdout and stderr", () => {
  test("up to the cap nothing is lost", async () => {
    const report = await run(`import os; os.write(1, b"x" * 1000); os.write(2, b"y" * 1000)`, {
      caps: { streamBytes: 1000 },
    });
    expect(report).toMatchObject({ stdoutTruncated: false, stderrTruncated: false });
    expect([report.out, report.err]).toEqual(["x".repeat(1000), "y".repeat(1000)]);
  });

  test("beyond it the middle is left out, on each stream by itself", async () => {
    const report = await run(
      `import os\nfor i in range(1000): os.write(1, b"%04d " % i)\nos.write(2, b"small")`,
      { caps: { streamBytes: 20 } },
    );
    expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: false, err: "small" });
    expect(report.out).toBe("0000 0001 \n[airlock: 4980 bytes left out]\n0998 0999 ");
  });

  test("an odd cap, and none at all", async () => {
    const code = `import os; os.write(1, b"abcdefgh")`;
    expect(await run(code, { caps: { streamBytes: 5 } })).toMatchObject({
      out: "abc\n[airlock: 3 bytes left out]\ngh",
    });
    expect(await run(code, { caps: { streamBytes: 0 } })).toMatchObject({
      out: "\n[airlock: 8 bytes left out]\n",
    });
  });

  test("a flood runs to its end without filling the supervisor's memory", async () => {
    const report = await run(`
import os
for _ in range(3000): os.write(1, b"x" * 100_000)
os.write(2, b"y" * 50_000_000)
peak = next(line for line in open("/proc/1/status") if line.startswith("VmHWM"))
print(peak, end="")`);
    expect(report).toMatchObject({ exitStatus: 0, stdoutTruncated: true, stderrTruncated: true });
    expect(Number(/VmHWM:\s+([0-9]+) kB\n$/.exec(report.out)?.[1])).toBeLessThan(40_000);
  });

  test("an agent that does not read cannot stop the clock", async () => {
    const blocked = startOnHost(python);
    started.push(blocked);
    const { promise: gate, resolve: resume } = Promise.withResolvers<void>();
    async function* slowly() {
      let isHeld = false;
      for await (const chunk of blocked.output) {
        yield chunk;
        if (isHeld) continue;
        isHeld = Buffer.from(chunk).includes("flood");
        if (isHeld) await gate;
      }
    }
    const session = await openSession(
      { ...blocked, output: slowly() },
      AbortSignal.timeout(30_000),
    );
    const running = session.run(
      {
        code: `import os\nos.write(1, b"flood")\nwhile True: os.write(1, b"x" * 100_000)`,
        inputJson: "{}",
        timeoutMs: 300,
        caps: { streamBytes: 100_000_000, artifactBytes: 0 },
      },
      { signal: new AbortController().signal, spoolDir: spoolRoot },
    );
    const heldMs = 6000;
    setTimeout(resume, heldMs);
    const report = await running;
    expect(report.ending).toBe("timeout");
    expect(report.executionMs).toBeLessThan(heldMs - 500);
  });

  test("forged frames are output like any other", async () => {
    const forged = `X\\x00\\x00\\x00\\x02{}`;
    const report = await run(
      `import os\nos.write(1, b"${forged}")\nos.write(2, b"Traceback\\nKeyError: 1")\nos._exit(3)`,
    );
    expect(report).toMatchObject({ ending: "exited", exitStatus: 3, exception: null });
    expect(report.out).toBe("X\0\0\0\u0002{}");
  });
});

describe("uncaught exceptions", () => {
  test("are told with their classes and message", async () => {
    const { exception } = await run(`class Mine(KeyError): pass\nraise Mine("missing", 1)`);
    expect(exception).toEqual({
      mro: [
        "__main__.Mine",
        ...["KeyError", "LookupError", "Exception", "BaseException", "object"].map(
          (name) => `builtins.${name}`,
        ),
      ],
      message: "('missing', 1)",
    });
  });

  test.each([
    ["a handled one", `try: 1 / 0\nexcept ZeroDivisionError: pass`],
    ["sys.exit", `import sys; sys.exit(1)`],
    ["one in a thread", `import threading; t = threading.Thread(target=lambda: 1 / 0); t.start()`],
    ["one in a child", `import os\nif os.fork() == 0: 1 / 0\nos.wait()`],
    [
      "one that is printed",
      `import traceback\ntry: 1 / 0\nexcept Exception: traceback.print_exc()`,
    ],
  ])("%s is none", async (_what, code) => {
    expect((await run(code)).exception).toBeNull();
  });

  test("whatever the code does to Python, the classes are told", async () => {
    const { exception, exitStatus } = await run(`
import builtins, os, sys
builtins.str = builtins.type = builtins.len = os.write = os.getpid = None
sys.excepthook = None
sys.modules.clear()
raise ValueError("x")`);
    expect({ exitStatus, first: exception?.mro[0] }).toEqual({
      exitStatus: 1,
      first: "builtins.ValueError",
    });
  });

  test("a huge message and a deep hierarchy are cut, the builtin bases stay", async () => {
    const { exception } = await run(`
c = ValueError
for i in range(100): c = type("C%d" % i + "x" * 500, (c,), {})
raise c("ü" * 1_000_000)`);
    expect(exception?.mro[0]).toMatch(/^__main__\.C99x+$/);
    expect(exception?.mro).toContain("builtins.ValueError");
    expect(exception?.message).toMatch(/^ü{500,1000}/);
  });

  test("a message that cannot be made is no exception", async () => {
    const report = await run(
      `class E(Exception):\n    def __str__(self): raise SystemExit(9)\nraise E`,
    );
    expect(report).toMatchObject({ exitStatus: 1, exception: null });
  });

  test("the channel for them is the job's to break, at no other price", async () => {
    const report = await run(`
import os
fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
top = max(fds)
try:
    while True: os.write(top, b"\\xff" * 999)
except BlockingIOError: pass
raise ValueError("x")`);
    expect(report).toMatchObject({ ending: "exited", exitStatus: 1 });
  });
});

describe("what the code gets", () => {
  test("its input, whatever its size", async () => {
    const inputJson = JSON.stringify({ text: "ü".repeat(2_000_000) });
    const { out } = await run(
      `import json; print(len(json.load(open("/input/data.json"))["text"]))`,
      { inputJson },
    );
    expect(out).toBe("2000000\n");
  });

  test("modules that were preloaded, with the rights of the code", async () => {
    const { out, usage } = await run(
      `import sys; print("asyncio" in sys.modules, "sitecustomize" in sys.modules)`,
      { preload: slowToImport },
    );
    expect(out).toBe("True False\n");
    expect(usage?.cpuTimeMs).toBeLessThan(60);
  });

  test("an end that finalizes what is its own, and spares what was preloaded", async () => {
    const { out } = await run(
      `
import atexit, decimal, sys
class Last:
    def __init__(self, word): self.word = word
    def __del__(self): print(self.word)
last = Last("mine")
decimal.last = Last("the module's")
atexit.register(lambda: print(sys.modules["decimal"] is decimal))`,
      { preload: ["decimal"] },
    );
    expect(out).toBe("True\nmine\n");
  });

  test("nothing that a preloaded module printed", async () => {
    const { out } = await run(`import this; print("mine")`, { preload: ["this"] });
    expect(out).toBe("mine\n");
  });

  test("the same error from a module whose preload failed", async () => {
    const { session } = await open({ preload: ["no_such_module", "decimal"] });
    expect(session.preloadErrors).toEqual({
      no_such_module: "ModuleNotFoundError: No module named 'no_such_module'",
    });
  });

  test("the PYTHONPATH of its job type", async () => {
    const { out } = await run(`import os, sys; print(os.environ["PYTHONPATH"], sys.path[:3])`, {
      env: { PYTHONPATH: "/opt/a:/opt/b" },
    });
    expect(out).toBe("/opt/a:/opt/b ['/code', '/opt/a', '/opt/b']\n");
  });

  test("an environment that its job type adds to", async () => {
    const { out } = await run(`import os; print(os.environ["MODE"], os.environ["HOME"])`, {
      env: { MODE: "ü b" },
    });
    expect(out).toBe("ü b /tmp\n");
  });

  test("a name in the process list, and no secret in the supervisor's", async () => {
    const { out } = await run(`
print(open("/proc/self/cmdline").read().split("\\0"))
for name in ("environ", "maps", "mem", "fd", "cwd"):
    try:
        import os
        os.listdir("/proc/1/fd") if name == "fd" else open("/proc/1/" + name).read()
        print("read", name)
    except OSError as e: print(type(e).__name__)`);
    expect(out).toBe("['python3', '/code/main.py', '']\n" + "PermissionError\n".repeat(5));
  });
});
