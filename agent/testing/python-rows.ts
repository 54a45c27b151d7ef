import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Python } from "../../scripts/setup/find-python.ts";
import { loadModules, sources } from "../python/program.ts";
import { maxPayloadBytes } from "../sandbox/frames.ts";
import type {
  CallAnswer,
  CallItem,
  DisplayItem,
  RunOptions,
  SandboxJob,
  Tools,
} from "../sandbox/job.ts";
import { classify, type RunReport } from "../sandbox/verdict.ts";
import { closeAll, openIndex, type PackageIndex, pipFrom, wheel } from "./package-index.ts";
import {
  ends,
  exceptions,
  lastActs,
  library,
  processes,
  sourceForms,
  surroundings,
} from "./programs.ts";
import { type HostOptions, inNamespace, openOnHost, runIn, runOnHost, text } from "./run-code.ts";
import { sessionRows } from "./session-rows.ts";

/** What must hold under each Python. */
export function pythonRows(python: () => Python): void {
  semanticsRows(python);
  cellRows(python);
  toolRows(python);
  sessionRows(python);
  bytecodeRows(python);
  cpuCountRow(python);
  packagesRow(python);
}

export interface Outcome {
  /** Exit status, or the negative number of a signal. */
  readonly exit: number;
  readonly stdout: string;
  readonly stderr: string;
}

type Inputs = Pick<SandboxJob, "stdin" | "args">;

/** Prints what the code can learn about its arguments and a standard input larger than a pipe. */
const withInputs = {
  code: `import argparse, os, stat, subprocess, sys
print(sys.argv, getattr(sys, "orig_argv", None), sys.stdin.seekable(), sys.stdin.isatty())
print(sys.stdin, sys.stdin.encoding, stat.S_ISREG(os.fstat(0).st_mode), os.get_inheritable(0))
print(ascii(input()), ascii(sys.stdin.readline()))
print(subprocess.run(["wc", "-c"], stdout=-1).stdout)
print(len(sys.stdin.buffer.read()), ascii(sys.stdin.read()))
os.lseek(0, 0, 0)
print(subprocess.run(["head", "-n1"], stdout=-1).stdout)
parser = argparse.ArgumentParser()
parser.add_argument("--name")
parser.add_argument("rest", nargs="*")
print(ascii(parser.parse_args()))
parser.error("as it is told")`,
  args: ["--name", "", "a b\n\"'", "\u00e4\u{1f600}", "*"],
  stdin: `tea\u00e4\u{1f600}\r\n\0\ufeff\n${"y".repeat(200_000)}`,
};

const caps = { streamBytes: 10_000_000, artifactBytes: 0 };

/** Rows: programs do the same with the supervisor as without it. */
function semanticsRows(python: () => Python): void {
  let plain: Map<string, Outcome>;
  beforeAll(() => void (plain = runPlain(python())));
  const runSupervised = (code: string | Uint8Array, inputs: Inputs = {}): Promise<RunReport> =>
    runOnHost(code, { python: python(), timeoutMs: 60_000, caps, ...inputs });

  test.concurrent.each(Object.entries(programs))("%s", async (name, code) => {
    const report = await runSupervised(code);
    expect(comparable(outcomeOf(report))).toEqual(comparable(plain.get(name)));
  });

  test("stdin and args", async () => {
    const { code, ...inputs } = withInputs;
    const report = await runSupervised(code, inputs);
    expect(outcomeOf(report)).toEqual(plain.get("stdin and args"));
  });

  test("what start-up created is kept out of the search for garbage", async () => {
    const code = `import gc, sys; print(sys.version_info >= (3, 10), gc.get_freeze_count() > 1000)`;
    const words = Buffer.from((await runSupervised(code)).stdout).toString();
    expect(["True True\n", "False False\n"]).toContain(words);
  });

  test.each([
    ["raise KeyError(1)", "builtins.KeyError"],
    ["def", "builtins.SyntaxError"],
    ["import json; json.loads('')", "json.decoder.JSONDecodeError"],
    ["import sys; sys.excepthook = print; 1 / 0", "builtins.ZeroDivisionError"],
    ["import sys; sys.exit(1)", undefined],
    ["import threading; threading.Thread(target=lambda: 1 / 0).start()", undefined],
  ])("%s is reported as %s", async (code, name) => {
    expect((await runSupervised(code)).exception?.mro[0]).toBe(name);
  });
}

/** What each program does without a supervisor. */
function runPlain(python: Python): Map<string, Outcome> {
  const plain = readFileSync(new URL("programs/plain.py", import.meta.url), "utf8");
  const program = loadModules({ ...sources(["kernel"]), plain });
  const [file = "", ...args] = inNamespace(python, ["python3", "-I", "-S", "-c", program]);
  const told = [...Object.values(programs).map((code) => ({ code })), withInputs].map(
    ({ code, ...given }: { code: string | Uint8Array } & Inputs) => [
      Buffer.from(code).toString("base64"),
      given.args ?? [],
      given.stdin ?? null,
    ],
  );
  const run = spawnSync(file, args, { input: JSON.stringify(told), encoding: "utf8" });
  if (run.status !== 0) throw new Error(run.stderr);
  const outcomes = JSON.parse(run.stdout) as [number, string, string][];
  return new Map(
    [...Object.keys(programs), "stdin and args"].map((name, i) => {
      const [exit = NaN, stdout = "", stderr = ""] = outcomes[i] ?? [];
      return [name, { exit, stdout: fromBase64(stdout), stderr: fromBase64(stderr) }];
    }),
  );
}

export function outcomeOf(report: RunReport): Outcome {
  return {
    exit: report.exitStatus ?? -signalNumber(report.exitSignal),
    stdout: Buffer.from(report.stdout).toString("latin1"),
    stderr: Buffer.from(report.stderr).toString("latin1"),
  };
}

/** Addresses differ from run to run. */
export function comparable(outcome: Outcome | undefined): Outcome {
  const { exit = NaN, stdout = "", stderr = "" } = outcome ?? {};
  const address = /0x[0-9a-f]+/g;
  return { exit, stdout: stdout.replace(address, "0x"), stderr: stderr.replace(address, "0x") };
}

function signalNumber(name: string | null): number {
  return (constants.signals as Record<string, number>)[name ?? ""] ?? NaN;
}

function fromBase64(text: string): string {
  return Buffer.from(text, "base64").toString("latin1");
}

/** Programs that must have the same output and end in a sandbox as with python3 run by hand. */
const programs: Readonly<Record<string, string | Uint8Array>> = {
  ...surroundings,
  ...exceptions,
  ...ends,
  ...lastActs,
  ...processes,
  ...library,
  ...sourceForms,
};

/** Rows: what cells show, and how they end. */
function cellRows(python: () => Python): void {
  test.concurrent.each([...cellValues, ...cellErrors])(
    "a cell: %s",
    async (_what, code, shown, rest) => {
      const report = await runOnHost(code, { python: python(), results: true });
      const { status, error, exitCode } = classify(report);
      const { items, out, err } = report;
      expect({
        shown: items.map(shortly),
        out,
        err,
        end: `${status} ${error?.type ?? "-"} ${exitCode}`,
      }).toEqual({ shown, out: "", err: "", end: "succeeded - 0", ...rest });
      expect(items.map(({ number }) => number)).toEqual(shown.map((_, n) => n + 1));
      expect(report.itemsTruncated).toBe(false);
    },
  );

  test("a cell: items say after which output they come", async () => {
    const { items } = await runOnHost(cellsByTurns, { python: python(), results: true });
    const expected = items.map((_, n) => [(n * (n + 1)) / 2, 2 * n]);
    expect(items.map(({ stdoutAt, stderrAt }) => [stdoutAt, stderrAt])).toEqual(expected);
    expect(items).toHaveLength(50);
  });
}

/** Its text, with a mark on the main result; a mock's text has its address. */
const shortly = ({ main, data }: DisplayItem): string =>
  `${main ? "= " : ""}${data["text/plain"]?.replace(/^<(MagicMock) .*/, "$1")}`;

/** Programs that run as cells, with what they show: the main result with "= " before it. */
type CellRow = [
  what: string,
  code: string,
  shown: string[],
  rest?: { out?: unknown; err?: unknown; end?: unknown },
];

const cellValues: CellRow[] = [
  ["the value of the last expression", "x = 20\nx + 22", ["= 42"]],
  ["its repr, not its str", "'a\\n'", ["= 'a\\n'"]],
  ["none after a semicolon", "1 + 1;", []],
  ["none after one behind spaces, with a comment", "f = 'é;' ; (f) ;  # ; no", []],
  ["that of an expression in parentheses before a comment", "(1 +\n 2)  # ;", ["= 3"]],
  ["none for None", "print('x')", [], { out: "x\n" }],
  ["none of a statement", "x = 1", []],
  ["none of no code", "# nothing", []],
  ["one of several on a line", "1; 2; 3", ["= 3"]],
  [
    "the value as the name _",
    "import atexit\natexit.register(lambda: print(_))\n6",
    ["= 6"],
    { out: "6\n" },
  ],
  [
    "what is displayed, before the result",
    "display(1, 'two')\nfor n in range(2): display([n])\n3",
    ["1", "'two'", "[0]", "[1]", "= 3"],
  ],
  [
    "top-level await",
    "import asyncio\nawait asyncio.sleep(0)\nasync def f(): return 5\nawait f()",
    ["= 5"],
  ],
  [
    "a task that is left is cancelled",
    `import asyncio
async def f():
    try: await asyncio.sleep(60)
    finally: print("ended")
task = asyncio.ensure_future(f())
await asyncio.sleep(0)`,
    [],
    { out: "ended\n" },
  ],
  [
    "asyncio.run in a cell that awaits nothing",
    "import asyncio\nasync def f(): return 1\nasyncio.run(f())",
    ["= 1"],
  ],
  [
    "code that is indented as a whole, whose strings keep the rest",
    "\n    x = '''\n      a'''\n    if x:\n        x += 'b'\n    x;\n    x",
    ["= '\\n  ab'"],
  ],
  [
    "what is printed is wider than a terminal",
    "import os, shutil\n(shutil.get_terminal_size().columns, os.environ['COLUMNS'])",
    ["= (200, '200')"],
  ],
  [
    "a figure of plotly whose show() does nothing",
    `import sys, types
io = sys.modules["plotly.io._renderers"] = types.ModuleType("plotly.io._renderers")
io.renderers = types.SimpleNamespace(default="")
class Figure:
    def show(self): pass
Figure().show()`,
    [],
    { err: expect.stringContaining("display(figure) shows one.\n") },
  ],
  [
    "the names of a plain script",
    `import sys
a, b = sys.modules["__main__"], sys.modules
(__name__, __file__, sys.argv, sys.path[0], __doc__, a.__spec__, "runpy" in b)`,
    ["= ('__main__', '/code/main.py', ['/code/main.py'], '/code', None, None, False)"],
  ],
  [
    "its source and its docstring",
    "'''Doc.'''\nimport inspect\ndef f(): return 1\n(inspect.getsource(f), __doc__)",
    ["= ('def f(): return 1\\n', 'Doc.')"],
  ],
  [
    "future statements",
    "from __future__ import annotations\ndef f(x: int): pass\nf.__annotations__",
    ["= {'x': 'int'}"],
  ],
  [
    "pickles of what __main__ defines",
    "import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))).__name__",
    ["= 'A'"],
  ],
  [
    "runpy afterwards",
    "import runpy\nopen('/tmp/m.py', 'w').write('y = 8')\nrunpy.run_path('/tmp/m.py')['y']",
    ["= 8"],
  ],
  [
    "a child process prints what it displays",
    "import os\npid = os.fork()\nif pid == 0:\n    display('child'); os._exit(0)\nos.waitpid(pid, 0)[1]",
    ["= 0"],
    { out: "'child'\n" },
  ],
  [
    "forms by the methods of a value, whose errors go to stderr",
    `class A:
    def __repr__(self): return "A"
    def _repr_html_(self): return "<b>A</b>"
    def _repr_png_(self): return b"png"
    def _repr_json_(self): return {"a": [1]}, {"expanded": True}
    def _repr_latex_(self): raise NotImplementedError
    def _repr_svg_(self): raise ValueError("no svg")
    def _repr_mimebundle_(self, include=None, exclude=None): return {"text/markdown": "*A*"}
import json
display(A())
display(A)`,
    ["A", "<class '__main__.A'>"],
    {
      err: expect.stringMatching(
        /^Traceback \(most recent call last\):\n {2}File "\/code\/main.py", line 7, in _repr_svg_\n.*\n(.*\n)?ValueError: no svg\n$/,
      ),
    },
  ],
  [
    "a value that answers to any name",
    "from unittest.mock import MagicMock\ntype(display(MagicMock(name='m'))).__name__",
    ["MagicMock", "= 'NoneType'"],
  ],
];

/** Shows and prints by turns; each item has the bytes of both streams before it. */
const cellsByTurns = `import sys
for n in range(50):
    display(n)
    print("x" * n)
    print("e", file=sys.stderr)`;

const cellErrors: CellRow[] = [
  [
    "an exception ends it, without frames of ours",
    `display(1)\ndef f(): return 1 / 0\nf()`,
    ["1"],
    {
      err: expect.stringMatching(
        /^Traceback \(most recent call last\):\n {2}File "\/code\/main.py", line 3, in <module>\n(?!.*(cells|asyncio|airlock))[^]*, line 2, in f\n[^]*\nZeroDivisionError: division by zero\n$/,
      ),
      end: "failed division_error 1",
    },
  ],
  [
    "one in a coroutine",
    `import asyncio\nawait asyncio.sleep(0)\nraise KeyError("x")`,
    [],
    {
      err: expect.stringMatching(
        /^Traceback .*\n {2}File "\/code\/main.py", line 3, in <module>\n(?![^]*asyncio)/,
      ),
      end: "failed key_error 1",
    },
  ],
  [
    "bad syntax",
    "x = 1\nx +",
    [],
    {
      err: expect.stringMatching(
        /^ {2}File "\/code\/main.py", line 2\n[^]*SyntaxError: invalid syntax\n$/,
      ),
      end: "failed syntax_error 1",
    },
  ],
  [
    "an indent that is wrong",
    "x = 1\n    y = 2",
    [],
    {
      err: expect.stringMatching(/line 2\n[^]*IndentationError: unexpected indent\n$/),
      end: "failed syntax_error 1",
    },
  ],
  [
    "a magic",
    "%matplotlib inline\n1",
    [],
    {
      err: expect.stringMatching(/SyntaxError[^]*This is Python, not IPython/),
      end: "failed syntax_error 1",
    },
  ],
  ["sys.exit", "import sys\ndisplay(1)\nsys.exit(3)", ["1"], { end: "failed runtime_error 3" }],
  [
    "an excepthook of the code",
    "import sys\nsys.excepthook = lambda *e: print(e[0].__name__, e[2].tb_lineno)\n1/0",
    [],
    { out: "ZeroDivisionError 3\n", end: "failed division_error 1" },
  ],
  [
    "one that raises",
    "import sys\ndef hook(*e): raise KeyError\nsys.excepthook = hook\n1/0",
    [],
    {
      err: expect.stringMatching(
        /^Error in sys.excepthook:\n[^]*KeyError\n\nOriginal exception was:\n[^]*ZeroDiv/,
      ),
      end: "failed division_error 1",
    },
  ],
  [
    "a repr that raises is no end",
    "class A:\n    def __repr__(self): raise ValueError('no')\ndisplay(1)\nA()",
    ["1"],
    {
      err: expect.stringMatching(
        /^Traceback .*\n {2}File "\/code\/main.py", line 2, in __repr__\n[^]*ValueError: no\n$/,
      ),
    },
  ],
  [
    "patched modules and builtins",
    `import builtins, json, sys, os, traceback, linecache, signal, posix, _thread
for module in (json, traceback, linecache, signal, posix, _thread):
    for name in dir(module):
        if not name.startswith("__"): setattr(module, name, None)
for name in ("len", "repr", "isinstance", "getattr", "print", "dict", "Exception", "compile", "eval", "open", "type"):
    setattr(builtins, name, None)
display(1)
2`,
    ["1", "= 2"],
  ],
];

/** Rows: functions of the caller, as the code finds them. */
function toolRows(python: () => Python): void {
  test.concurrent.each(toolPrograms)("a tool: %s", async (_what, code, out, rest) => {
    const { calls, onCall } = answering();
    const report = await runOnHost(code, {
      python: python(),
      results: true,
      tools,
      options: { onCall },
    });
    const { status, error } = classify(report);
    const told = { out: report.out, err: report.err, end: `${status} ${error?.type ?? "-"}` };
    expect(told).toEqual({ out, err: "", end: "succeeded -", ...rest });
    expect(calls.map(({ number }) => number)).toEqual(calls.map((_, n) => n + 1));
  });
}

/** Functions that a caller could bring, as a request describes them. */
const functions = [
  {
    name: "add",
    description: "Adds two numbers.",
    parameters: { type: "object", properties: { b: {}, a: {} }, required: ["a"] },
  },
  { name: "echo", parameters: { additionalProperties: true } },
  { name: "fail" },
  { name: "never" },
  { name: "later", awaitable: true, parameters: { properties: { n: {} } } },
  {
    name: "odd",
    parameters: {
      properties: { "user-id": {}, class: {}, ﬁ: {}, others: {}, __debug__: {}, args: {} },
      required: ["args", "user-id"],
    },
  },
];

export const tools: Tools = { functions, timeoutMs: 20_000 };

type OnCall = NonNullable<RunOptions["onCall"]>;

/** A caller that answers at once, except `never`; it keeps what was called. */
export function answering(own?: OnCall) {
  const calls: CallItem[] = [];
  const onCall: OnCall = (call, answer) => {
    calls.push(call);
    if (own) return own(call, answer);
    if (call.name !== "never") answer(answerTo(call));
  };
  return { calls, onCall };
}

function answerTo({ name, arguments: given }: CallItem): CallAnswer {
  const { a = 0, b = 0 } = given as { a?: number; b?: number };
  if (name === "fail") return { error: "it failed" };
  return { resultJson: JSON.stringify(name === "add" ? a + b : given) };
}

/** Programs that call tools, with what they print. */
type ToolRow = [what: string, code: string, out: string, rest?: { err?: unknown; end?: string }];

const toolPrograms: ToolRow[] = [
  ["returns its result", "print(add(1, 2), add(b=1, a=3), add(5))", "3 4 5\n"],
  [
    "has name, docstring and signature",
    `import inspect
print(add.__name__, add.__qualname__, add.__module__, add.__doc__)
for each in (add, echo, fail, odd, later): print(inspect.signature(each))
print(inspect.iscoroutinefunction(later), inspect.iscoroutinefunction(add))`,
    "add add __main__ Adds two numbers.\n(a, b=Ellipsis)\n(**others)\n()\n(args, others=Ellipsis, **others_)\n(n=Ellipsis)\nTrue False\n",
  ],
  [
    "takes names that no parameter can have",
    'print(odd(1, **{"user-id": 2, "class": 3, "__debug__": 4, "ﬁ": 5}))',
    "{'args': 1, 'user-id': 2, 'class': 3, '__debug__': 4, 'ﬁ': 5}\n",
  ],
  [
    "any JSON goes both ways",
    String.raw`print(echo(a=None, b=[True, 1.5, "é\ud800\0", {}], c={"d": "\"},{"}) == {"a": None, "b": [True, 1.5, "é\ud800\0", {}], "c": {"d": "\"},{"}})`,
    "True\n",
  ],
  [
    "what is no JSON is an exception of the code, and no call",
    `for value in (object(), float("nan"), {(1,): 2}):
    try: echo(a=value)
    except (TypeError, ValueError) as error: print(type(error).__name__)
print(add(1))`,
    "TypeError\nValueError\nTypeError\n1\n",
  ],
  [
    "wrong arguments are a TypeError",
    `try: add()
except TypeError as error: print(error)
try: fail(1)
except TypeError as error: print(error)`,
    "add() missing 1 required positional argument: 'a'\nfail() takes 0 positional arguments but 1 was given\n",
  ],
  [
    "an error is a ToolError",
    "try: fail()\nexcept ToolError as error: print(repr(error), type(error).__module__)",
    "ToolError('it failed') __main__\n",
  ],
  [
    "an error that the code does not catch ends it, without our frames",
    "def f():\n    fail()\nf()",
    "",
    {
      err: expect.stringMatching(
        /^Traceback \(most recent call last\):\n {2}File "\/code\/main.py", line 3, in <module>\n(?:.*\n){1,2} {2}File "\/code\/main.py", line 2, in f\n(?!.*(airlock|tools))(?:.*\n){1,2}(__main__\.)?ToolError: it failed\n$/,
      ),
      end: "failed runtime_error",
    },
  ],
  [
    "many threads at once",
    `from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(50) as pool: print(sum(pool.map(add, range(200), range(200))))`,
    "39800\n",
  ],
  [
    "many coroutines at once",
    `import asyncio
found = await asyncio.gather(*[later(n) for n in range(200)])
print([each["n"] for each in found] == list(range(200)))`,
    "True\n",
  ],
  [
    "threads and coroutines at once",
    `import asyncio
async def both(n):
    return (await asyncio.gather(later(n), asyncio.to_thread(add, n) if hasattr(asyncio, "to_thread") else later(n)))[0]["n"]
print(sum(await asyncio.gather(*[both(n) for n in range(60)])))`,
    "1770\n",
  ],
  [
    "one that waits in a coroutine blocks it, and another's answer comes all the same",
    `import asyncio
async def f():
    task = asyncio.ensure_future(later(1))
    await asyncio.sleep(0)
    return add(1), (await task)["n"]
print(await f())`,
    "(1, 1)\n",
  ],
  [
    "a coroutine that gives up",
    `import asyncio
from concurrent.futures import ThreadPoolExecutor
async def f():
    with ThreadPoolExecutor(1) as pool:
        hanging = asyncio.ensure_future(later(7))
        hanging.cancel()
        try: await hanging
        except asyncio.CancelledError: print("gave up")
    print((await later(8))["n"])
asyncio.run(f())
print(add(2))`,
    "gave up\n8\n2\n",
  ],
  [
    "a loop of its own in each thread",
    `import asyncio, threading
found = []
def f(n): found.append(asyncio.run(later(n))["n"])
threads = [threading.Thread(target=f, args=(n,)) for n in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(sorted(found))`,
    "[0, 1, 2, 3, 4, 5, 6, 7]\n",
  ],
  [
    "a signal handler that calls, while a call waits",
    `import os, signal, threading
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGUSR1, interrupt)
def handler(*_):
    print("handler", add(1, 1))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
signal.signal(signal.SIGALRM, handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    never()
except KeyboardInterrupt: print("interrupted")
print(add(2, 2))`,
    "handler 2\ninterrupted\n4\n",
  ],
  [
    "only the first process calls",
    `import os
pid = os.fork()
if pid == 0:
    try: add(1)
    except ToolError as error: print(error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(add(1))`,
    "Only the first process of the code can call add().\n1\n",
  ],
  [
    "a program that it starts gets no descriptor of the calls",
    `import os, subprocess, sys
print(subprocess.run([sys.executable, "-c", "import os; print([fd for fd in os.listdir('/proc/self/fd') if int(fd) > 900])"], close_fds=False, capture_output=True, text=True).stdout.strip())`,
    "[]\n",
  ],
  [
    "answers that are larger than a pipe",
    "text = 'x' * 1_000_000\nprint(echo(a=text)['a'] == text)",
    "True\n",
  ],
  [
    "arguments above 1 MiB are a ToolError, and no call",
    `try: echo(a="x" * (1 << 20))
except ToolError as error: print(error)
print(add(1))`,
    "The arguments of echo() have more than 1048576 bytes of JSON.\n1\n",
  ],
  [
    "1,000 calls, and no more",
    `for n in range(1000): add(n)
try: add(1)
except ToolError as error: print(error)`,
    "The code has called tools too often, or with too many bytes of arguments.\n",
  ],
  [
    "patched modules and builtins",
    `import builtins, json, json.decoder, json.encoder, keyword, posix, _thread
for module in (json, json.encoder, json.decoder, keyword, posix, _thread):
    for name in dir(module):
        if not name.startswith("__"): setattr(module, name, None)
show = print
for name in ("len", "iter", "next", "isinstance", "dict", "Exception", "set", "eval", "open", "type", "print"):
    setattr(builtins, name, None)
show(add(1, 2))`,
    "3\n",
  ],
];

/** Rows about bytecode that must hold under each Python. */
function bytecodeRows(python: () => Python): void {
  const open = async (options: HostOptions) =>
    (await openOnHost({ python: python(), ...options })).conversation;

  test("bytecode that one supervisor made serves the next", async () => {
    const first = await open({});
    expect(first.bytecode?.program.length).toBeGreaterThan(10_000);
    const next = await open({ bytecode: first.bytecode });
    expect(next.bytecode).toBeNull();
    expect(next.pythonVersion).toBe(python().version);
  });

  test("a job's container gets no module that only sessions and cells need", async () => {
    const { bytecode } = await open({});
    const later = ["cells", "serve", "session", "tools"];
    expect(modulesIn(bytecode!.later)).toEqual(new Set(later));
    expect(later.filter((name) => modulesIn(bytecode!.program).has(name))).toEqual([]);
    expect(bytecode!.program.length).toBeLessThan(maxPayloadBytes / 2);
  });

  test("bytecode of another Python is refused before any of it is read", async () => {
    const { bytecode } = await open({});
    const program = Uint8Array.from(bytecode!.program);
    program[0]! ^= 1;
    await expect(open({ bytecode: { ...bytecode!, program } })).rejects.toThrow(
      "bytecode of another Python",
    );
  });
}

/** The modules that bytecode is of. */
function modulesIn(bytecode: Uint8Array): Set<string> {
  const found = Buffer.from(bytecode)
    .toString("latin1")
    .matchAll(/airlock\/(\w+)\.py/g);
  return new Set([...found].map(([, name = ""]) => name));
}

/** Prints how many CPUs the usual libraries count. */
export const counts = `
import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import ThreadPool
own = getattr(os, "process_cpu_count", os.cpu_count)
executor, pool = ProcessPoolExecutor(), ThreadPool()
print(os.cpu_count(), own(), multiprocessing.cpu_count(), executor._max_workers, pool._processes)
`;

function cpuCountRow(python: () => Python): void {
  test("os.cpu_count() is what PYTHON_CPU_COUNT says", async () => {
    const env = { PYTHON_CPU_COUNT: "7" };
    expect((await runOnHost(counts, { python: python(), env })).out).toBe("7 7 7 7 7\n");
  });
}

const code = `
import subprocess, sys
import airlock_probe
at = [path.startswith("/packages") for path in sys.path]
images = [("-packages" in path and not path.startswith("/packages")) for path in sys.path]
print(airlock_probe.n, pth_ran, at.index(True) > sys.path.index("/code") and at.index(True) < images.index(True))
print(subprocess.check_output([sys.executable, "-c", "import airlock_probe as p; print(p.n, pth_ran)"]).decode())
`;

function packagesRow(python: () => Python): void {
  let index: PackageIndex;
  beforeAll(async () => {
    const files = { "airlock.pth": "import builtins; builtins.pth_ran = True\n" };
    const more = { requires: ["airlock-base"], files };
    index = await openIndex({
      wheels: [
        wheel("airlock_base", "n = 42\n"),
        wheel("airlock_probe", "from airlock_base import n\n", more),
      ],
    });
  });
  afterAll(closeAll);

  test("installs packages, and finds them", async () => {
    const { link, conversation } = await openOnHost({ python: python() });
    const from = await pipFrom(index);
    await conversation.install(
      { requirements: ["airlock-probe"], from },
      AbortSignal.timeout(60_000),
    );
    const report = await runIn(conversation, code);
    const [out, err] = [report.stdout, report.stderr].map(text);
    expect([out, err]).toEqual(["42 True True\n42 True\n\n", ""]);
    link.destroy();
    await link.ended;
  });
}
