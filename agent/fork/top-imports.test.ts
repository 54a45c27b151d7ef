import { expect, test } from "vitest";
import { topImports } from "./top-imports.ts";

test.each<[string, string, string[]]>([
  [
    "modules, once each",
    "import numpy as np, os.path\nfrom pandas import DataFrame\nimport numpy",
    ["numpy", "os.path", "pandas"],
  ],
  ["also below comments, docstrings and code", '"""A."""\n# b\nx = 1\nimport json  # c', ["json"]],
  [
    "none in blocks, of its own package or from the future",
    "if x:\n    import a\nfrom . import b\nfrom __future__ import annotations",
    [],
  ],
  ["none in what is no import", "import a; print(1)\nimportant = 1\nimport 1a\nfrom_x = 2", []],
  [
    "none after something that an earlier import would miss",
    "import a\nos.environ['X'] = '1'\nimport b",
    ["a"],
  ],
  ["none after a thread count", "OMP_NUM_THREADS = 1\nimport numpy", []],
  ["of Windows lines", "import a\r\nimport b\r\n", ["a", "b"]],
])("finds %s", (_what, code, names) => {
  expect(topImports(code)).toEqual(names);
});

test("looks at the beginning of a long text alone, and at few modules", () => {
  expect(topImports(`${"x = 1\n".repeat(200)}import a`)).toEqual([]);
  expect(topImports(`#${"x".repeat(16_384)}\nimport a`)).toEqual([]);
  const many = Array.from({ length: 30 }, (_, n) => `import m${n}`).join("\n");
  expect(topImports(many)).toHaveLength(16);
});
