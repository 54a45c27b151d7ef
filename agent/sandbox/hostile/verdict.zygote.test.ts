import { describe, expect, test } from "vitest";
import { testEngine } from "../../testing/engine.ts";
import { hostileCases } from "../../testing/hostile.ts";
import { runCode } from "../../testing/run-code.ts";

const die = (name: string): string => `
import os, signal
if "${name}" != "SIGKILL": signal.signal(signal.${name}, signal.SIG_DFL)
os.kill(os.getpid(), signal.${name})`;

hostileCases(({ run }) => {
  test.each([137, 143])(
    "hostile 7: exit status %i is neither oom nor cancelled",
    async (status) => {
      const { end } = await run(`import sys; sys.exit(${status})`);
      expect(end).toBe(`failed runtime_error ${status}`);
    },
  );

  describe("hostile 8: code that kills itself", () => {
    test.each([
      ["SIGSEGV", "segfault 139"],
      ["SIGABRT", "abort 134"],
      ["SIGFPE", "arithmetic_error 136"],
      ["SIGBUS", "bus_error 135"],
      ["SIGPIPE", "pipe_error 141"],
      ["SIGKILL", "killed 137"],
    ])("with %s", async (name, verdict) => {
      expect((await run(die(name))).end).toBe(`failed ${verdict}`);
    });
  });

  describe("hostile 15: forgeries", () => {
    test("forged frames and tracebacks", async () => {
      const { end, out, err, files } = await run(String.raw`
import os
frame = b"X\0\0\0\x02{}A\0\0\0\x02{}Z\0\0\0\x02{}"
os.write(1, frame)
os.write(2, b"Traceback (most recent call last):\nKeyError: 1\n")
for fd in range(3, 4096):
    try: os.write(fd, frame)
    except OSError: pass
os._exit(3)`);
      expect({ end, out, err, files }).toEqual({
        end: "failed runtime_error 3",
        out: "X\0\0\0\u0002{}A\0\0\0\u0002{}Z\0\0\0\u0002{}",
        err: "Traceback (most recent call last):\nKeyError: 1\n",
        files: {},
      });
    });

    test("an exit frame that claims success, at the supervisor's own descriptors", async () => {
      const { end, files } = await run(String.raw`
import json, os
body = json.dumps({"ending": "exited", "exit_status": 0, "exit_signal": None, "out_of_memory": False,
    "exception": None, "wall_ms": 1, "cpu_ms": 1, "max_rss_bytes": 1, "truncated": [False, False]}).encode()
frame = b"X" + len(body).to_bytes(4, "big") + body
for pid in os.listdir("/proc"):
    for fd in range(8):
        try: os.write(os.open("/proc/%s/fd/%d" % (pid, fd), os.O_WRONLY), frame)
        except OSError: pass
os._exit(9)`);
      expect({ end, files }).toEqual({ end: "failed runtime_error 9", files: {} });
    });

    test("a forged report of an exception changes only the error's type", async () => {
      const { end, verdict } = await run(String.raw`
import os
body = b"builtins.MemoryError\0builtins.Exception\0\0forged"
told = len(body).to_bytes(2, "big") + body
for fd in range(3, 4096):
    for data in (told, b"\xff\xff", b"\0\1"):
        try: os.write(fd, data)
        except OSError: pass
os._exit(5)`);
      expect(end).toMatch(/^failed [a-z_]+ 5$/);
      expect(["oom", "cancelled", "killed", "internal_error"]).not.toContain(verdict.error?.type);
    });

    test("a forged traceback before a good end", async () => {
      const code = `import sys\nprint("Traceback (most recent call last):\\nMemoryError", file=sys.stderr)`;
      expect((await run(code)).end).toBe("succeeded - 0");
    });
  });
});

hostileCases(({ run }) => {
  describe("hostile 11: output without end", () => {
    // 10 GB against the memory of a real agent: scripts/lab/whole.engine.test.ts.
    test("a flood of output", async () => {
      const { end, out, report } = await run(
        `import os\nos.write(1, b"head")\nfor _ in range(5000): os.write(1, b"x" * 200_000)\nos.write(1, b"tail")`,
      );
      expect(end).toBe("succeeded - 0");
      expect(out).toMatch(/^headx+\n\[airlock: 999000008 bytes left out\]\nx+tail$/);
      expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: false });
    });

    test("a flood on both streams, from many processes, until the time limit", async () => {
      const code = `
import os
for _ in range(4): os.fork()
while True: os.write(1, b"o" * 100_000); os.write(2, b"e" * 100_000)`;
      const { end, out, err, report } = await run(code, { job: { timeoutMs: 3000 } });
      expect(end).toBe("timeout execution_timeout null");
      expect(report).toMatchObject({ stdoutTruncated: true, stderrTruncated: true });
      expect(out).toMatch(/^o+\n\[airlock: \d+ bytes left out\]\no+$/);
      expect(err).toMatch(/^e+\n\[airlock: \d+ bytes left out\]\ne+$/);
    });

    test("a hundred thousand one-byte writes", async () => {
      const code = `import os\nfor _ in range(100_000): os.write(1, b"x")`;
      const { end, out } = await run(code);
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "x".repeat(100_000) });
    });
  });

  test("hostile 15: code that reads its own streams gets only its own output", async () => {
    const { end, out, err } = await run(`
import glob, os, threading
mine = os.open("/dev/stdout", os.O_RDONLY)
own = [os.fstat(fd).st_ino for fd in (0, 1, 2)]
found = []
for name in glob.glob("/proc/[0-9]*/fd/*"):
    try: fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    except OSError: continue
    if os.fstat(fd).st_ino not in own and os.readlink(name).startswith("pipe:"): found.append(name)
    os.close(fd)
def take():
    while os.read(mine, 65536): pass
threading.Thread(target=take, daemon=True).start()
for _ in range(100): os.write(1, b"x" * 65536)
os.write(2, repr(found).encode())
os._exit(7)`);
    expect({ end, err }).toEqual({ end: "failed runtime_error 7", err: "[]" });
    expect(out).toMatch(/^x*(\n\[airlock: \d+ bytes left out\]\nx*)?$/);
  });

  describe("hostile 13: bytes that are not text", () => {
    test.each([
      ["invalid UTF-8", [0xff, 0xfe, 0xc0, 0x80, 0xe2, 0x28]],
      ["NUL", [0x61, 0, 0x62, 0]],
      ["ANSI", [...Buffer.from("\u001b[31m\u001b]0;title\u0007\u001b[2J\r\b")]],
      ["lone surrogates", [0xed, 0xa0, 0x80, 0xed, 0xbf, 0xbf]],
      ["half a character at the end", [0xe2, 0x82]],
    ])("%s on both streams arrives byte for byte", async (_what, bytes) => {
      const code = `import os\nfor fd in (1, 2): os.write(fd, bytes(${JSON.stringify(bytes)}))`;
      const { end, report } = await run(code);
      expect(end).toBe("succeeded - 0");
      expect([...report.stdout]).toEqual(bytes);
      expect([...report.stderr]).toEqual(bytes);
    });

    test("a surrogate that print cannot encode is the code's own error", async () => {
      expect((await run(`print("\\ud800")`)).end).toBe("failed encoding_error 1");
    });
  });
});

hostileCases(({ run, canaryPath }) => {
  describe("hostile 20: result.json", () => {
    test.each([
      ["NaN", `f.write('{"a": NaN}')`, "not JSON"],
      ["a number beyond every double", `f.write('{"a": 1e400}')`, "too large for a double"],
      ["a list", `f.write("[1]")`, "an array, not an object"],
      ["a depth of 100,000", `f.write('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")`, "deep"],
      ["half", `f.write('{"a":')`, "not JSON"],
      ["not UTF-8", `f.buffer.write(b'{"a": "\\xff"}')`, "not UTF-8"],
      ["a link", `os.unlink(f.name); os.symlink("/etc/passwd", f.name)`, "not a regular file"],
      ["a FIFO", `os.unlink(f.name); os.mkfifo(f.name)`, "not a regular file"],
      ["a folder", `os.unlink(f.name); os.mkdir(f.name)`, "not a regular file"],
      ["a hard link", `os.link(f.name, "/output/x")`, "more than one hard link"],
      [
        "3.4 million empty objects",
        `f.write('{"a": [' + "{}," * 3_400_000 + "{}]}")`,
        "keys and values",
      ],
      ["100 MB", `f.write(" " * 100_000_000)`, "larger than"],
    ])("a result.json that is %s", async (_what, code, problem) => {
      const { end, report } = await run(
        `import os\nwith open("/output/result.json", "w") as f: ${code}`,
        { spec: { memoryBytes: 512 * 1024 ** 2 } },
      );
      expect(end).toBe("failed json_error 0");
      expect(report.result).toEqual({
        kind: "invalid",
        problem: expect.stringContaining(problem) as string,
      });
    });

    test("1 GB without content", async () => {
      const code = `import os\nos.truncate(os.open("/output/result.json", os.O_CREAT | os.O_WRONLY), 1 << 30)`;
      const { end } = await run(code, { spec: { memoryBytes: 1 << 30 } });
      expect(end).toBe("failed json_error 0");
    });

    test("a link to a file of the host", async () => {
      const { end, report } = await run(
        `import os\nos.symlink("${canaryPath()}", "/output/result.json")`,
      );
      expect(end).toBe("failed json_error 0");
      expect(report.artifacts).toEqual([]);
    });

    test("duplicate keys are kept as they were written", async () => {
      const text = '{"a": 1, "a": {"a": 2}}';
      const { end, report } = await run(`open("/output/result.json", "w").write('${text}')`);
      expect(end).toBe("succeeded - 0");
      expect(report.result).toEqual({ kind: "object", text });
    });
  });

  describe("hostile 21: special keys", () => {
    test("in result.json are data", async () => {
      const text = '{"__proto__": {"a": 1}, "constructor": {"prototype": null}}';
      const { end, report } = await run(`open("/output/result.json", "w").write('${text}')`);
      expect({ end, result: report.result }).toEqual({
        end: "succeeded - 0",
        result: { kind: "object", text },
      });
      expect(({} as Record<string, unknown>)["a"]).toBeUndefined();
    });

    test("in input_data are data", async () => {
      const inputJson = '{"__proto__": {"a": 1}, "constructor": 2}';
      const code = `import json; print(json.load(open("/input/data.json")))`;
      const { out } = await run(code, { job: { inputJson } });
      expect(out).toBe("{'__proto__': {'a': 1}, 'constructor': 2}\n");
    });
  });
});

hostileCases(({ run }) => {
  // NUL in the source is 400: api/testing/contract/requests.ts.
  describe("hostile 14: sources that python3 runs", () => {
    test("no code at all", async () => {
      expect(await run("")).toMatchObject({ end: "succeeded - 0", out: "", err: "" });
    });

    test("a coding cookie that contradicts a byte order mark is a syntax error", async () => {
      expect((await run("\u{feff}# coding: latin-1\n")).end).toBe("failed syntax_error 1");
    });

    test.each(["no-such-codec", "rot13", "zlib"])("the coding cookie %s", async (codec) => {
      expect((await run(`# coding: ${codec}\nprint(1)`)).end).toBe("failed syntax_error 1");
    });

    test("nesting that the parser refuses", async () => {
      const { end } = await run("(".repeat(100_000));
      expect(end).toMatch(/^failed (syntax_error|runtime_error) 1$/);
    });

    test("NUL, if it gets past the API", async () => {
      expect((await run("print('a\0b')")).end).toBe("failed syntax_error 1");
    });
  });
});

/** Replaces everything that a report of an exception could go through, and then fails. */
const monkeypatched = `
import atexit, builtins, io, json, os, posix, sys, traceback
def no(*_, **__): pass
for module in (json, traceback):
    for name in list(vars(module)):
        if not name.startswith("__"): setattr(module, name, no)
for name in ("open", "print", "repr", "type", "str", "len", "getattr", "isinstance", "BaseException", "Exception"): setattr(builtins, name, no)
sys.excepthook = sys.unraisablehook = no
sys.exit = os._exit = os.write = posix.write = no
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None
sys.modules.clear()
{}["missing"]`;

hostileCases(({ run }) => {
  describe("hostile 30: tricks on the interpreter", () => {
    test("files that an interpreter would read: none does in this job", async () => {
      const { end, out } = await run(`
import os, subprocess, sys
version = "python%d.%d" % sys.version_info[:2]
user = "/tmp/.local/lib/%s/site-packages" % version
os.makedirs(user)
bad = "open('/output/ran', 'a').write(__name__)"
for folder in (user, "/output", "/tmp"):
    for name in ("sitecustomize", "usercustomize", "json", "collector", "link", "os"): open("%s/%s.py" % (folder, name), "w").write(bad)
open(user + "/evil.pth", "w").write("import os; " + bad)
open("/tmp/.pythonrc", "w").write(bad)
print("written")
os._exit(6)`);
      expect({ end, out }).toEqual({ end: "failed runtime_error 6", out: "written\n" });
    });

    test("sitecustomize, usercustomize and PYTHONSTARTUP do what python3 does", async () => {
      const { out, err } = await run(
        `
import os, site, subprocess, sys
os.makedirs(site.getusersitepackages())
open(site.getusersitepackages() + "/usercustomize.py", "w").write("print('user')")
print(subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True).stdout)`,
        { spec: { env: { PYTHONSTARTUP: "/code/main.py", PYTHONINSPECT: "" } } },
      );
      expect({ out, err }).toEqual({ out: "user\nchild\n\n", err: "" });
    });

    test("a json.py in the working directory is not the json that is imported", async () => {
      const { end, out } = await run(`
open("json.py", "w").write("raise SystemExit('not json')")
import json, sys
print(json.dumps({}), sys.path[0])`);
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "{} /code\n" });
    });

    test("monkeypatched builtins and modules do not make a failure a success", async () => {
      const { end, verdict } = await run(monkeypatched);
      expect(end).toMatch(/^failed /);
      expect(verdict.exitCode).toBe(1);
    });

    test("an exception that lies about itself", async () => {
      const { end } = await run(String.raw`
class Meta(type):
    __mro__ = property(lambda cls: [][0]); __name__ = property(lambda cls: [][0])
    def __getattribute__(cls, name): raise SystemExit(0)
class Liar(Exception, metaclass=Meta):
    def __getattribute__(self, name): raise SystemExit(0)
    def __str__(self): raise SystemExit(0)
    def __repr__(self): return "\0" * 10_000_000
raise Liar`);
      expect(end).toMatch(/^failed [a-z_]+ 1$/);
    });

    test("a message of ten megabytes, and one that is not text", async () => {
      expect((await run(`raise ValueError("x" * 10**7)`)).end).toBe("failed value_error 1");
      expect((await run(`raise KeyError("\\ud800\\0\\x1b[31m\\r\\n")`)).end).toBe(
        "failed key_error 1",
      );
    });

    test.each([
      ["fails after a good end", "atexit.register(lambda: 1 / 0)", "succeeded - 0"],
      ["ends the process well after an error", "atexit.register(os._exit, 0); x", "succeeded - 0"],
      ["ends the process badly", "atexit.register(os._exit, 9)", "failed runtime_error 9"],
      ["never ends", "atexit.register(time.sleep, 600)", "timeout execution_timeout null"],
      ["removes all others", "atexit._clear(); {}[0]", "failed runtime_error 1"],
    ])("an atexit handler that %s", async (_what, code, end) => {
      const timeoutMs = end.startsWith("timeout") ? 1500 : 60_000;
      const result = await run(`import atexit, os, time\n${code}`, { job: { timeoutMs } });
      // The type of the error is reported by an atexit handler. If that is removed too, only the exit status is left.
      const ends = end === "failed runtime_error 1" ? [end, "failed key_error 1"] : [end];
      expect(ends).toContain(result.end);
    });

    test.each([
      ["os._exit(5)", "failed runtime_error 5"],
      ["os.kill(os.getpid(), 9)", "failed killed 137"],
      ["sys.exit(3)", "succeeded - 0"],
      ["[][0]", "succeeded - 0"],
    ])("%s in a thread", async (code, end) => {
      const result = await run(`
import os, sys, threading
thread = threading.Thread(target=lambda: ${code}); thread.start(); thread.join()`);
      expect(result.end).toBe(end);
    });

    test("another program in place of python", async () => {
      const { end, out } = await run(
        `import os; os.execv("/bin/sh", ["sh", "-c", "echo on; exit 8"])`,
      );
      expect({ end, out }).toEqual({ end: "failed runtime_error 8", out: "on\n" });
    });
  });
});

const place = await testEngine();

test.each([
  ["import_error", "import no_such_module"],
  ["division_error", "1 / 0"],
  ["overflow_error", "import math; math.exp(1000)"],
  ["encoding_error", "b'\\xff'.decode()"],
  ["network_timeout", "raise TimeoutError"],
])("%s: %s", async (type, code) => {
  expect((await runCode(place, code)).end).toBe(`failed ${type} 1`);
});
