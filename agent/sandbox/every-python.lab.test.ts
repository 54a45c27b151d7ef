import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { findPython, promisedPythons, type Python } from "../../scripts/setup/find-python.ts";
import { needs } from "../../scripts/testing/needs.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { pythonRows } from "../testing/python-rows.ts";
import { runOnHost } from "../testing/run-code.ts";
import { classify } from "./verdict.ts";

for (const minor of promisedPythons) {
  describe(`Python ${minor}`, needs("root", `python${minor}`), () => {
    pythonRows(() => findPython(minor)!);
  });
}

/** IPython, as notebooks have it, and what they show most. */
const pinned = ["ipython==8.31.0", "pandas==2.3.3", "matplotlib==3.10.7"];
const theirs = fileURLToPath(new URL("../testing/programs/ipython_shows.py", import.meta.url));
const run = promisify(execFile);

const shown = "class A:\n    def __repr__(self): return 'A!'\n";
const both: [what: string, code: string][] = [
  ["a number", "x = 1\nx + 1"],
  ["a text", "'a' * 3"],
  ["None", "None"],
  ["a semicolon", "1 + 1;"],
  ["a statement last", "for n in range(3):\n    n"],
  ["several expressions", "1\n2\n3"],
  ["a repr of its own", `${shown}A()`],
  ["display, and a value", `${shown}display(A(), 'two')\n3`],
  ["the name _", "40 + 2\n"],
  ["top-level await", "import asyncio\nawait asyncio.sleep(0, 'late')"],
  ["async for", "async def f():\n    yield 1\n[n async for n in f()]"],
  [
    "HTML",
    "class B:\n    def _repr_html_(self): return '<b>b</b>'\n    def __repr__(self): return 'B'\nB()",
  ],
  [
    "Markdown, LaTeX and SVG",
    `class C:
    def _repr_markdown_(self): return '**c**'
    def _repr_latex_(self): return '$c$'
    def _repr_svg_(self): return '<svg/>'
    def __repr__(self): return 'C'
C()`,
  ],
  [
    "a bundle",
    "class D:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'd', 'text/x-d': 'D'}\nD()",
  ],
  [
    "JSON",
    "class E:\n    def _repr_json_(self): return {'e': [1]}\n    def __repr__(self): return 'E'\nE()",
  ],
  [
    "PNG from bytes",
    "class F:\n    def _repr_png_(self): return b'\\x89PNG'\n    def __repr__(self): return 'F'\nF()",
  ],
  [
    "a method that returns None",
    "class G:\n    def _repr_html_(self): return None\n    def __repr__(self): return 'G'\nG()",
  ],
  ["an error", "1 / 0"],
  ["an error after a value", "display(1)\nraise KeyError('k')"],
  ["a syntax error", "def"],
  ["output beside a value", "print('out')\n5"],
  ["a table", "import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"],
  ["a series", "import pandas\npandas.Series([1, 2], name='s')"],
  ["tables by display", "import pandas\nfor n in range(2): display(pandas.DataFrame({'n': [n]}))"],
  ["a figure at the end", "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"],
  [
    "two figures",
    "import matplotlib.pyplot as plt\nfor n in range(2):\n    plt.figure(); plt.plot([n])\n    plt.show()",
  ],
];

/** Programs that show something else here, with the reason. */
const differing: [what: string, code: string, reason: string][] = [
  ["a long list", "list(range(100))", "IPython wraps long values to lines of 79; ours is repr"],
  ["a set", "{33, 1, 10}", "IPython sorts sets"],
  [
    "a class",
    "class H:\n    def _repr_html_(self): return 'h'\nH",
    "IPython prints the name of a class; ours is repr",
  ],
  ["a magic", "%time 1", "ours is Python alone"],
];

interface Shown {
  items: { main: boolean; data: Record<string, unknown> }[];
  out: string;
  error: string | null;
}

describe("a cell and IPython", needs("root", "python3.13"), () => {
  const folder = tempFolder();
  const python = (): Python => ({ ...findPython("3.13")!, folder });
  let expected: Shown[] = [];
  beforeAll(async () => {
    await run("cp", ["-a", `${findPython("3.13")!.folder}/.`, folder]);
    await run(join(folder, "bin/python3"), ["-m", "pip", "install", "--quiet", ...pinned]);
    const asked = run(join(folder, "bin/python3"), [theirs]);
    asked.child.stdin!.end(JSON.stringify([...both, ...differing].map(([, code]) => code)));
    expected = JSON.parse((await asked).stdout) as Shown[];
  });

  async function ours(code: string): Promise<Shown> {
    const report = await runOnHost(code, {
      python: python(),
      env: { LD_LIBRARY_PATH: join(folder, "lib") },
      results: true,
    });
    const { items, out, err } = report;
    const { error } = classify(report);
    const type = /^(\w+)(?::|$)/m.exec(err.trimEnd().split("\n").at(-1) ?? "")?.[1] ?? "?";
    return {
      items: items.map(({ main, data }) => ({ main, data })),
      out,
      error: error === null ? null : type,
    };
  }

  test.each(both.map(([what, code], n) => [what, code, n] as const))(
    "show the same: %s",
    async (_what, code, n) => {
      expect(alike(await ours(code))).toEqual(alike(expected[n]!));
    },
  );

  test.each(differing.map(([what, code, why], n) => [what, why, code, n + both.length] as const))(
    "differ: %s (%s)",
    async (_what, _why, code, n) => {
      expect(alike(await ours(code))).not.toEqual(alike(expected[n]!));
    },
  );
});

/** Pictures are compared by their kind, values of JSON by what they say. */
function alike({ items, ...rest }: Shown) {
  return { ...rest, items: items.map(({ main, data }) => ({ main, data: byType(data) })) };
}
const byType = (data: Record<string, unknown>) =>
  Object.fromEntries(
    Object.entries(data).map(([type, value]) => [
      type,
      type === "image/png" && String(value).length > 100
        ? "a picture"
        : type === "application/json" && typeof value === "string"
          ? (JSON.parse(value) as unknown)
          : value,
    ]),
  );
