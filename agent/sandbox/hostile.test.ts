import { beforeAll, describe, expect, test } from "vitest";
import { testEngine } from "./testing/engine.ts";
import { type Run, runCode, type Settings } from "./testing/run-code.ts";

let place: Awaited<ReturnType<typeof testEngine>>;
beforeAll(async () => {
  place = await testEngine();
});

describe.each(["runc", "runsc"])("under %s", (runtime) => {
  const isGvisor = runtime === "runsc";

  /** Runs code in a container, which must be gone afterwards. */
  async function run(code: string, settings?: Settings): Promise<Run> {
    const spec = { runtime, ...settings?.spec };
    const result = await runCode(place, code, { ...settings, spec });
    expect(result.left).toBe(0);
    return result;
  }

  test("a fork bomb", async () => {
    const code = `import os\nwhile True:\n    try: os.fork()\n    except OSError: pass`;
    const { end } = await run(code, { job: { timeoutMs: 1500 } });
    // Under gVisor each process costs memory of the same limit.
    expect(end).toBe(isGvisor ? "oom oom 137" : "timeout execution_timeout null");
  });

  test("a thread bomb", async () => {
    const code = `import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()`;
    const { end } = await run(code);
    expect(end).toBe("failed runtime_error 1");
  });

  test("a flood of output", async () => {
    const { end, out, report } = await run(
      `import os\nos.write(1, b"head")\nfor _ in range(5000): os.write(1, b"x" * 200_000)\nos.write(1, b"tail")`,
    );
    expect(end).toBe("succeeded - 0");
    expect(out).toMatch(/^headx+\n\[airlock: 999000008 bytes left out\]\nx+tail$/);
    expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: false });
  });

  test("processes that hide and hold on", async () => {
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

  test("signals to everyone", async () => {
    const { end, out } = await run(`
import os
for pid in (1, -1):
    try: os.kill(pid, 9)
    except OSError as e: print(type(e).__name__)
print("alive")`);
    expect({ end, out }).toEqual({
      end: "succeeded - 0",
      out: expect.stringMatching(/alive\n$/) as string,
    });
  });

  test("all descriptors closed, the streams with them", async () => {
    const { end } = await run(`import os\nos.closerange(0, 4096)\nopen("x", "w").close()`);
    expect(end).toBe("succeeded - 0");
  });

  test("a job that stops itself", async () => {
    const { end } = await run(`import os, signal; os.kill(os.getpid(), signal.SIGSTOP)`, {
      job: { timeoutMs: 500 },
    });
    expect(end).toBe("timeout execution_timeout null");
  });

  test("a daemon that keeps stdout open after its parent's end", async () => {
    const { end, out } = await run(`
import os, time
print("parent", flush=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)`);
    expect({ end, out }).toEqual({ end: "succeeded - 0", out: "parent\n" });
  });

  test("code that ignores SIGTERM", async () => {
    const code = `import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint("on", flush=True)\nwhile True: time.sleep(60)`;
    const { end, out } = await run(code, { job: { timeoutMs: 300 } });
    expect({ end, out }).toEqual({ end: "timeout execution_timeout null", out: "on\n" });
  });

  test("forged frames and tracebacks", async () => {
    const { end, out, err } = await run(String.raw`
import os
frame = b"X\0\0\0\x02{}Z\0\0\0\x02{}"
os.write(1, frame)
os.write(2, b"Traceback (most recent call last):\nKeyError: 1\n")
for fd in range(3, 1024):
    try: os.write(fd, frame)
    except OSError: pass
os._exit(3)`);
    expect({ end, out, err }).toEqual({
      end: "failed runtime_error 3",
      out: "X\0\0\0\u0002{}Z\0\0\0\u0002{}",
      err: "Traceback (most recent call last):\nKeyError: 1\n",
    });
  });

  test("links, pipes, sockets and hard links in /output", async () => {
    const { files, report } = await run(`
import os, socket
for i, target in enumerate(["/etc/shadow", "/proc/1/environ", "/", "fine"]): os.symlink(target, "link%d" % i)
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open("one", "w").write("x"); os.link("one", "two")
open("fine", "w").write("y")`);
    expect(files).toEqual({ fine: "y" });
    expect(report.skipped.map(({ reason, count }) => [reason, count])).toEqual([
      ["not_a_regular_file", 6],
      ["hard_link", 2],
    ]);
  });

  test("a sparse terabyte, a hundred thousand files and a deep tree in /output", async () => {
    const { end, out, files, report } = await run(
      `
import os
sparse = os.open("sparse", os.O_CREAT | os.O_WRONLY)
for size in (1 << 40, 1 << 29):
    try: os.truncate(sparse, size)
    except OSError as e: print(e.strerror)
open("a", "w").write("kept")
for i in range(100_000): os.close(os.open("/output/n%d" % i, os.O_CREAT | os.O_WRONLY))
for i in range(3000): os.mkdir("d"); os.chdir("d")`,
      { spec: { memoryBytes: 1024 ** 3 }, job: { timeoutMs: 60_000 } },
    );
    expect({ end, out }).toEqual({ end: "failed file_error 0", out: "File too large\n" });
    expect(report.lostReason).toBeNull();
    const reasons = report.skipped.map(({ reason }) => reason);
    expect(reasons).toEqual(["too_many_files"]);
    expect(Object.keys(files).length).toBeLessThan(20_000);
  });

  test("names that are no names for a URL or a header", async () => {
    const { files } = await run(String.raw`
names = ["cr\rlf\n", "\udcff", "\u202egnp", "back\\slash", 'quote"', "%2e", "n" * 255]
for name in names: open("/output/" + name, "w").close()`);
    expect(Object.keys(files).sort()).toEqual(["%2e", "n".repeat(255), 'quote"'].sort());
  });

  test.each([
    ["NaN", `f.write('{"a": NaN}')`, "json_error"],
    ["a list", `f.write("[1]")`, "json_error"],
    ["a depth of 100,000", `f.write('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")`, "json_error"],
    ["half", `f.write('{"a":')`, "json_error"],
    ["a link", `os.unlink(f.name); os.symlink("/etc/passwd", f.name)`, "json_error"],
    ["a FIFO", `os.unlink(f.name); os.mkfifo(f.name)`, "json_error"],
    ["100 MB", `f.write(" " * 100_000_000)`, "json_error"],
  ])("a result.json that is %s", async (_what, code, type) => {
    const { end } = await run(`import os\nwith open("/output/result.json", "w") as f: ${code}`, {
      spec: { memoryBytes: 512 * 1024 ** 2 },
    });
    expect(end).toBe(`failed ${type} 0`);
  });

  test("special keys in result.json are data", async () => {
    const text = '{"__proto__": {"a": 1}, "constructor": null}';
    const { end, report } = await run(`open("/output/result.json", "w").write('${text}')`);
    expect({ end, result: report.result }).toEqual({
      end: "succeeded - 0",
      result: { kind: "object", text },
    });
  });

  test("an /output that is closed, and one that is not to be moved", async () => {
    const { end, out, files } = await run(`
import os
open("kept", "w").write("x")
for act in (lambda: os.rename("/output", "/moved"), lambda: os.rmdir("/output")):
    try: act()
    except OSError: print("no")
try: os.chmod("/output", 0)
except OSError: print("no")`);
    expect({ end, out, files }).toEqual({
      end: "succeeded - 0",
      out: "no\nno\nno\n",
      files: { kept: "x" },
    });
  });
});
