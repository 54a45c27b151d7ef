import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { needsThroughout } from "../../scripts/testing/needs.ts";
import { pid1Command, supervisorProgram } from "../python/program.ts";
import {
  files,
  openOnHost,
  runIn,
  runOnHost,
  slowToImport,
  startForFile,
} from "../testing/run-code.ts";
import { openConversation } from "./conversation.ts";
import type { RunReport } from "./verdict.ts";

// A supervisor on this machine has its own namespaces.
needsThroughout("root", "ip");

test("it refuses to start outside a container of its own", () => {
  const [file = "", ...args] = pid1Command;
  const refused = spawnSync(file, args, { encoding: "utf8", input: supervisorProgram([]) });
  expect(refused.status).toBe(1);
  expect(refused.stderr).toMatch(/^not PID 1/);
});

describe("the end of the code", () => {
  test("code may clean up within the grace period, and still counts as timed out", async () => {
    const report = await runOnHost(
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

  test("when the agent ends, everything ends", async () => {
    const { link, conversation } = await openOnHost();
    const running = runIn(conversation, `import time\nprint("on", flush=True)\ntime.sleep(60)`, {
      options: { onOutput: () => link.destroy() },
    });
    expect(await running).toMatchObject({ ending: "lost", started: true });
    await link.ended;
  });

  test("time and memory are counted for the code and its children, not for the start", async () => {
    const report = await runOnHost(`
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
    const idle = await runOnHost("", { preload: slowToImport });
    expect(idle.usage?.cpuTimeMs).toBeLessThan(60);
  });
});

describe("stdout and stderr", () => {
  test("up to the cap nothing is lost", async () => {
    const report = await runOnHost(
      `import os; os.write(1, b"x" * 1000); os.write(2, b"y" * 1000)`,
      { caps: { streamBytes: 1000 } },
    );
    expect(report).toMatchObject({ stdoutTruncated: false, stderrTruncated: false });
    expect([report.out, report.err]).toEqual(["x".repeat(1000), "y".repeat(1000)]);
  });

  test("beyond the cap the middle of each stream is left out", async () => {
    const report = await runOnHost(
      `import os\nfor i in range(1000): os.write(1, b"%04d " % i)\nos.write(2, b"small")`,
      { caps: { streamBytes: 20 } },
    );
    expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: false, err: "small" });
    expect(report.out).toBe("0000 0001 \n[airlock: 4980 bytes left out]\n0998 0999 ");
  });

  test.each([1, 3, 64])(
    "no character is cut, if the code writes %s bytes at a time",
    async (size) => {
      const code = `
import os
text = ("é" + "€" * 3 + "😀" * 5).encode() * 100
for at in range(0, len(text), ${size}): os.write(1, text[at:at + ${size}])`;
      for (const streamBytes of [31, 32, 33, 34]) {
        const pieces: Buffer[] = [];
        const onOutput = (_: string, bytes: Uint8Array): void =>
          void pieces.push(Buffer.from(bytes));
        const { out } = await runOnHost(code, { caps: { streamBytes }, options: { onOutput } });
        const leftOut = Number(
          /^[é€😀]+\n\[airlock: (\d+) bytes left out\]\n[é€😀]+$/u.exec(out)?.[1],
        );
        expect(leftOut + Buffer.byteLength(out.replace(/\n.*\n/, ""))).toBe(3100);
        expect(pieces.map(String).join("")).toBe(out);
      }
    },
  );

  test("an odd cap is kept, and so is a cap of 0", async () => {
    const code = `import os; os.write(1, b"abcdefgh")`;
    expect(await runOnHost(code, { caps: { streamBytes: 5 } })).toMatchObject({
      out: "abc\n[airlock: 3 bytes left out]\ngh",
    });
    expect(await runOnHost(code, { caps: { streamBytes: 0 } })).toMatchObject({
      out: "\n[airlock: 8 bytes left out]\n",
    });
  });

  test("a flood runs to its end without filling the supervisor's memory", async () => {
    const report = await runOnHost(`
import os
for _ in range(3000): os.write(1, b"x" * 100_000)
os.write(2, b"y" * 50_000_000)
peak = next(line for line in open("/proc/1/status") if line.startswith("VmHWM"))
print(peak, end="")`);
    expect(report).toMatchObject({ exitStatus: 0, stdoutTruncated: true, stderrTruncated: true });
    expect(Number(/VmHWM:\s+([0-9]+) kB\n$/.exec(report.out)?.[1])).toBeLessThan(40_000);
  });

  test("an agent that does not read does not stop the clock", async () => {
    const blocked = startForFile();
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
    const conversation = await openConversation(
      { ...blocked, output: slowly() },
      AbortSignal.timeout(30_000),
    );
    const running = runIn(
      conversation,
      `import os\nos.write(1, b"flood")\nwhile True: os.write(1, b"x" * 100_000)`,
      { job: { timeoutMs: 300, caps: { streamBytes: 100_000_000, artifactBytes: 0 } } },
    );
    const heldMs = 6000;
    setTimeout(resume, heldMs);
    const report = await running;
    expect(report.ending).toBe("timeout");
    expect(report.executionMs).toBeLessThan(heldMs - 500);
  });
});

describe("uncaught exceptions", () => {
  test("are reported with their classes and message", async () => {
    const { exception } = await runOnHost(`class Mine(KeyError): pass\nraise Mine("missing", 1)`);
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
    ["a handled exception", `try: 1 / 0\nexcept ZeroDivisionError: pass`],
    ["an exception in a child", `import os\nif os.fork() == 0: 1 / 0\nos.wait()`],
    [
      "a printed exception",
      `import traceback\ntry: 1 / 0\nexcept Exception: traceback.print_exc()`,
    ],
  ])("%s is not reported", async (_what, code) => {
    expect((await runOnHost(code)).exception).toBeNull();
  });

  test("are reported with their classes, whatever the code does to Python", async () => {
    const { exception, exitStatus } = await runOnHost(`
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

  test("with a huge message or a deep hierarchy are cut, but keep the built-in bases", async () => {
    const { exception } = await runOnHost(`
c = ValueError
for i in range(100): c = type("C%d" % i + "x" * 500, (c,), {})
raise c("ü" * 1_000_000)`);
    expect(exception?.mro[0]).toMatch(/^__main__\.C99x+$/);
    expect(exception?.mro).toContain("builtins.ValueError");
    expect(exception?.message).toMatch(/^ü{500,1000}/);
  });

  test("whose message cannot be made are not reported", async () => {
    const report = await runOnHost(
      `class E(Exception):\n    def __str__(self): raise SystemExit(9)\nraise E`,
    );
    expect(report).toMatchObject({ exitStatus: 1, exception: null });
  });

  test("have a channel that a job can break for itself only", async () => {
    const report = await runOnHost(`
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
  test("finalizers at the end, also of objects that a preloaded module refers to", async () => {
    const { out } = await runOnHost(
      `
import atexit, decimal, os, sys
from typing import Optional
class Row:
    def __init__(self, n: int): self.n = n
def best(rows) -> Optional[Row]: return max(rows, default=None)
class Last:
    def __del__(self): os.write(1, b"deleted\\n")
decimal.last = Last()
lines = open(os.dup(1), "w")
lines.write("written\\n")
atexit.register(lambda: print(sys.modules["decimal"] is decimal))`,
      { preload: ["decimal", "typing"] },
    );
    expect(out.split("\n").sort()).toEqual(["", "True", "deleted", "written"]);
  });

  test("nothing that a preloaded module printed", async () => {
    const { out } = await runOnHost(`import this; print("mine")`, { preload: ["this"] });
    expect(out).toBe("mine\n");
  });

  test("the same error from a module whose preload failed", async () => {
    const { conversation } = await openOnHost({ preload: ["no_such_module", "decimal"] });
    expect(conversation.preloadErrors).toEqual({
      no_such_module: "ModuleNotFoundError: No module named 'no_such_module'",
    });
  });

  test("the PYTHONPATH of its job type", async () => {
    const { out } = await runOnHost(
      `import os, sys; print(os.environ["PYTHONPATH"], sys.path[:3])`,
      { env: { PYTHONPATH: "/opt/a:/opt/b" } },
    );
    expect(out).toBe("/opt/a:/opt/b ['/code', '/opt/a', '/opt/b']\n");
  });
});

/** The report of code that leaves things in /output, its working directory. */
async function leave(code: string, artifactBytes = 1_000_000): Promise<RunReport> {
  const report = await runOnHost(`import os\n${code}`, { caps: { artifactBytes } });
  expect(report).toMatchObject({ ending: "exited", exitStatus: 0, lostReason: null, err: "" });
  return report;
}

function names({ artifacts }: RunReport): string[] {
  return artifacts.map(({ name }) => name);
}

test("files in folders are collected in order, byte for byte", async () => {
  const report = await leave(`
os.makedirs("sub/deeper"); os.mkdir("empty")
open("sub/deeper/x.bin", "wb").write(bytes(range(256)) * 1000)
open("b", "w").close(); open("a ü", "w").write("text")`);
  expect(names(report)).toEqual(["a ü", "b", "sub/deeper/x.bin"]);
  const [, , big] = report.artifacts;
  expect(big).toMatchObject({ sizeBytes: 256_000 });
  expect(readFileSync(big!.path)).toEqual(
    Buffer.alloc(
      256_000,
      Uint8Array.from({ length: 256 }, (_, i) => i),
    ),
  );
  expect(report.skipped).toEqual([]);
});

test("the files that fit are kept when there are too many bytes", async () => {
  const report = await leave(
    `for name, size in ("a", 60), ("b", 60), ("c", 40): open(name, "w").write("x" * size)`,
    100,
  );
  expect(names(report)).toEqual(["a", "c"]);
  expect(report.skipped).toEqual([{ reason: "too_many_bytes", count: 1, names: ["b"] }]);
});

test("the first thousand are kept when there are too many files", async () => {
  const report = await leave(`for i in range(1200): open("f%05d" % i, "w").close()`);
  expect(report.artifacts).toHaveLength(1000);
  expect(names(report).at(-1)).toBe("f00999");
  expect(report.skipped).toMatchObject([{ reason: "too_many_files", count: 200 }]);
});

test("a path of more than a thousand bytes is skipped", async () => {
  const report = await leave(`
os.makedirs("/".join(["d" * 200] * 5))
os.chdir("/".join(["d" * 200] * 5))
open("x" * 19, "w").close(); open("x" * 20, "w").close()`);
  expect(names(report)).toEqual([`${"d".repeat(200)}/`.repeat(5) + "x".repeat(19)]);
  expect(report.skipped).toMatchObject([{ reason: "name_too_long", count: 1 }]);
});

test("a result.json over its cap is kept as an artifact if there is room", async () => {
  const code = `open("result.json", "w").write('{"a": "' + "x" * 11_000_000 + '"}')`;
  const problem = "it is larger than 10485760 bytes";
  const roomy = await leave(code, 20_000_000);
  expect(roomy.result).toEqual({ kind: "invalid", problem });
  expect(names(roomy)).toEqual(["result.json"]);
  const tight = await leave(code);
  expect(tight.result).toEqual({ kind: "invalid", problem });
  expect(tight.skipped).toMatchObject([{ reason: "too_many_bytes", names: ["result.json"] }]);
});

test("a result.json does not count against the artifacts", async () => {
  const report = await leave(
    `open("result.json", "w").write('{"a": "' + "x" * 1000 + '"}'); open("a", "w").write("x" * 100)`,
    100,
  );
  expect(report).toMatchObject({ result: { kind: "object" }, skipped: [] });
  expect(names(report)).toEqual(["a"]);
});
