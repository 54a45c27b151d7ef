import { expect } from "vitest";

/** Programs that run as cells, with what they show: the main result with "= " before it. */
export type Row = [
  what: string,
  code: string,
  shown: string[],
  rest?: { out?: unknown; err?: unknown; end?: unknown },
];

export const values: Row[] = [
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
export const byTurns = `import sys
for n in range(50):
    display(n)
    print("x" * n)
    print("e", file=sys.stderr)`;

export const errors: Row[] = [
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
