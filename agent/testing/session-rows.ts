import { expect, test } from "vitest";
import type { Python } from "../../scripts/setup/find-python.ts";
import { openSessionOnHost } from "./run-code.ts";

/** Rows: what the cells of a session share, and how they end. */
export function sessionRows(python: () => Python): void {
  const open = (session?: Record<string, string>) =>
    openSessionOnHost({ python: python(), ...(session && { session }) });

  test("a session: variables, imports and the last value stay from call to call", async () => {
    const { call } = await open();
    expect(await call("import math\nx = 41")).toMatchObject({ end: "succeeded - 0", shown: [] });
    expect(await call("x + 1")).toMatchObject({ shown: ["42"] });
    expect(await call("print(math.floor(1.5)); _ + 1")).toMatchObject({
      out: "1\n",
      shown: ["43"],
    });
    expect(await call("_;")).toMatchObject({ shown: [], end: "succeeded - 0" });
  });

  test("a session: an exception ends its call only, with the lines of every cell that it passed", async () => {
    const { call } = await open();
    await call("def half(n):\n    return 1 / n");
    const failed = await call("x = 1\nhalf(0)");
    expect(failed).toMatchObject({ end: "failed division_error 1", out: "" });
    const lines = failed.err.split("\n").filter((line) => !/^ *[~^]+$/.test(line));
    expect(lines).toEqual([
      "Traceback (most recent call last):",
      '  File "<cell 2>", line 2, in <module>',
      "    half(0)",
      expect.stringMatching(/^ {2}File "<cell 1>", line 2, in half$/),
      "    return 1 / n",
      "ZeroDivisionError: division by zero",
      "",
    ]);
    expect(await call("x")).toMatchObject({ shown: ["1"], end: "succeeded - 0", err: "" });
    expect(await call("import inspect\nprint(inspect.getsource(half))")).toMatchObject({
      out: "def half(n):\n    return 1 / n\n\n",
    });
    const wrong = await call("!pip list");
    expect(wrong.end).toBe("failed syntax_error 1");
    expect(wrong.err).toMatch(/^ {2}File "<cell 5>", line 1\n {4}!pip list\n/);
    expect(wrong.err).toContain("This is Python, not IPython");
    const long = await call("raise ValueError('x' * 65_000)");
    expect(long.message).toHaveLength(65_000 + "ValueError: ".length);
  });

  test("a session: sys.exit ends its call with that status", async () => {
    const { call } = await open();
    const ends = [];
    for (const code of ["", "0", "3", "-1", "'no'", "True"]) {
      const { end, err } = await call(`import sys\nsys.exit(${code})`);
      ends.push(`${end} ${err.trim()}`.trim());
    }
    expect(ends).toEqual([
      "succeeded - 0",
      "succeeded - 0",
      "failed runtime_error 3",
      "failed runtime_error 255",
      "failed runtime_error 1 no",
      "failed runtime_error 1",
    ]);
    expect((await call("'still here'")).shown).toEqual(["'still here'"]);
  });

  test("a session: a call has stdin, arguments and variables of its own; those of the session stay", async () => {
    const { call } = await open({ FROM: "session", BOTH: "session", TZ: "OFS-3" });
    const code = `
import os, sys
def line():
    try: return input()
    except EOFError: return "end"
print(line(), line(), sys.argv[1:], [os.environ.get(name) for name in ("FROM", "BOTH", "OWN")])`;
    const has = {
      stdin: "one\ntwo\nthree\n",
      args: ["a", "b c"],
      env: { BOTH: "call", OWN: "=\n" },
    };
    expect((await call(code, has)).out).toBe("one two ['a', 'b c'] ['session', 'call', '=\\n']\n");
    expect((await call(code)).out).toBe("end end [] ['session', 'session', None]\n");
    expect((await call(code, { stdin: "x" })).out).toBe("x end [] ['session', 'session', None]\n");
    expect(
      (await call("print(open('/input/data.json').read())", { inputJson: '{"a":1}' })).out,
    ).toBe('{"a":1}\n');
    const zone = "import time\nprint(time.strftime('%z'), time.tzname[0])";
    const zones = [await call(zone), await call(zone, { env: { TZ: "OWN-5" } }), await call(zone)];
    expect(zones.map(({ out }) => out)).toEqual(["+0300 OFS\n", "+0500 OWN\n", "+0300 OFS\n"]);
    await call("os.environ['FROM'] = 'code'");
    expect((await call("os.environ['FROM']")).shown).toEqual(["'code'"]);
  });

  test("a session: one event loop serves top-level await, and an interrupted task does not go on", async () => {
    const { call } = await open();
    await call(
      "import asyncio\nseen = []\nasync def later(n):\n    await asyncio.sleep(0.01)\n    return n",
    );
    expect(await call("await later(1)")).toMatchObject({ shown: ["1"] });
    await call("task = asyncio.get_event_loop().create_task(later(2))");
    expect(await call("await task")).toMatchObject({ shown: ["2"] });
    const cut = await call("await asyncio.sleep(60)\nseen.append('went on')", { timeoutMs: 500 });
    expect(cut.end).toBe("timeout execution_timeout null");
    expect(await call("await later(3)\nseen")).toMatchObject({ shown: ["[]"] });
  });

  test("a session: a task made without a running loop is explained, and warned of in its own call", async () => {
    const { call } = await open();
    const failed = await call("import asyncio\nasync def f(): pass\nasyncio.create_task(f())");
    expect(failed.err).toMatch(
      /RuntimeError: no running event loop\n[^]*await something in it\.\n/,
    );
    expect(failed.err).toContain("coroutine 'f' was never awaited");
    expect((await call("1 / 0")).err).not.toContain("never awaited");
    expect(await call("t = asyncio.create_task(f())\nawait t")).toMatchObject({ err: "" });
  });

  test("a session: a timeout interrupts the code, and everything stays", async () => {
    const { call } = await open();
    const cut = await call(
      "x = 1\nimport time\ntry:\n    time.sleep(60)\nfinally:\n    print('tidy', flush=True)",
      { timeoutMs: 500 },
    );
    expect(cut).toMatchObject({ end: "timeout execution_timeout null", out: "tidy\n" });
    expect(cut.err).toMatch(/KeyboardInterrupt\n$/);
    expect(await call("x")).toMatchObject({ shown: ["1"] });
  });

  test("a session: a cancel at any moment of a call ends that call alone, and everything stays", async () => {
    const { call } = await open();
    await call(
      "import asyncio\nclass Slow:\n    def __repr__(self): return str(sum(range(20_000)))\n    def _repr_html_(self): return 'x' * 900_000\nkept = []",
    );
    const body = "y = [1, 2, 3]\n".repeat(300);
    const codes = [
      `${body}Slow()`,
      `${body}while True: pass`,
      "while True: display(Slow())",
      "await asyncio.sleep(60)",
      "1 / 0",
    ];
    const ends = new Set<string>();
    for (let n = 0; n < 150; n++) {
      const cancel = new AbortController();
      const { end } = await call(
        codes[n % 5]!,
        {},
        { signal: cancel.signal, onStarted: () => void abortAfter(n % 30, cancel) },
      );
      ends.add(end);
      const next = await call("await asyncio.sleep(0)\nkept.append(1)\nlen(kept)");
      expect(next).toMatchObject({ shown: [`${n + 1}`], end: "succeeded - 0", err: "" });
    }
    for (const end of ["succeeded - 0", "failed division_error 1"]) ends.delete(end);
    expect([...ends]).toEqual(["cancelled cancelled 143"]);
  });

  test("a session: a function whose exceptions Python ignores does not swallow an interrupt", async () => {
    const { call } = await open();
    await call(
      "import time, weakref\nkept = 1\nclass Plain: pass\nclass Slow:\n    def __del__(self): time.sleep(60)",
    );
    for (const begun of ["Slow()", "ref = weakref.ref(Plain(), lambda _: time.sleep(60))"]) {
      const cut = await call(`${begun}\nwhile True: pass`, { timeoutMs: 300 });
      expect(cut.end).toBe("timeout execution_timeout null");
      expect(cut.err).toMatch(/KeyboardInterrupt\n$/);
      expect(await call("kept")).toMatchObject({ shown: ["1"], err: "" });
    }
  });

  test("a session: code that is interrupted while it is compiled does not run, and everything stays", async () => {
    const { call } = await open();
    await call("kept = 1");
    const long = `kept = 2\n${"x = [1, 2, 3]\n".repeat(100_000)}`;
    const cut = await call(long, { timeoutMs: 100 });
    expect(cut.end).toBe("timeout execution_timeout null");
    expect(await call("kept")).toMatchObject({ shown: ["1"], err: "" });
  });

  test("a session: figures and the report of an exception can be interrupted, too", async () => {
    const { call } = await open();
    await call("import sys, time\nkept = 1\nsys.excepthook = lambda *_: time.sleep(60)");
    expect((await call("1 / 0", { timeoutMs: 300 })).end).toBe("timeout execution_timeout null");
    await call(
      "class Slow:\n    def flush(self): time.sleep(60)\nout, sys.stdout = sys.stdout, Slow()",
      { timeoutMs: 300 },
    );
    expect(await call("sys.stdout = out\nkept")).toMatchObject({ shown: ["1"] });
  });

  test("a session: the code's own handler of SIGINT stays", async () => {
    const { call } = await open();
    await call("import os, signal, time\nsignal.signal(signal.SIGINT, lambda *_: print('heard'))");
    expect(await call("os.kill(os.getpid(), signal.SIGINT)")).toMatchObject({ out: "heard\n" });
  });

  test("a session: code that patches what cells use breaks nothing", async () => {
    const { call } = await open();
    const patched = await call(`
import builtins, json, linecache, os, signal, sys, time, traceback
def broken(*_, **__): raise RuntimeError("patched")
for module, names in ((json, ["dumps", "loads"]), (traceback, ["format_exception", "print_exception"]),
    (linecache, ["getline", "getlines", "checkcache"]), (signal, ["signal", "getsignal"]), (time, ["sleep"]),
    (os, ["open", "read", "write", "close", "dup2", "getpid", "fsdecode"]),
    (builtins, ["compile", "exec", "eval", "print", "open", "repr"])):
    for name in names: setattr(module, name, broken)
sys.modules.clear()
1`);
    expect(patched.end).toBe("succeeded - 0");
    const next = await call("[1]");
    expect(next).toMatchObject({ end: "succeeded - 0", shown: ["[1]"] });
    expect((await call("1 / 0")).end).toBe("failed division_error 1");
    expect((await call("import sys\nsys.exit(4)", { stdin: "x" })).end).toBe(
      "failed runtime_error 4",
    );
  });

  test("a session: a child process that reaches the end of a cell ends there", async () => {
    const { call } = await open();
    const forked = await call(
      "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('child' if pid == 0 else 'parent')",
    );
    expect(forked.out).toBe("child\nparent\n");
    expect(await call("pid > 0")).toMatchObject({ shown: ["True"] });
  });
}

async function abortAfter(turns: number, cancel: AbortController): Promise<void> {
  for (let n = 0; n < turns; n++) await new Promise(setImmediate);
  cancel.abort();
}
