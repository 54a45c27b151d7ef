import { expect, test } from "vitest";
import { readScriptMetadata } from "./script-metadata.ts";

const script = (lines: string): string => `import sys\n\n# /// script\n${lines}\n# ///\nprint(1)\n`;

test.each([
  ["no block", "print(1)\n", []],
  [
    "a block",
    script('# requires-python = ">=3.11"\n# dependencies = ["numpy", "rich>=13"]'),
    ["numpy", "rich>=13"],
  ],
  ["a list over lines", script('# dependencies = [\n#   "numpy",\n#\n# ]'), ["numpy"]],
  [
    "lines that end with CRLF",
    script('# dependencies = ["numpy"]').replaceAll("\n", "\r\n"),
    ["numpy"],
  ],
  ["a block of another type", '# /// other\n# dependencies = ["numpy"]\n# ///\n', []],
  ["a block without an end", '# /// script\n# dependencies = ["numpy"]\n', []],
  ["a block without dependencies", script('# requires-python = ">=3.11"'), []],
])("reads the dependencies of a script with %s", (_, code, dependencies) => {
  expect(readScriptMetadata(code).dependencies).toEqual(dependencies);
});

test.each([
  ["two blocks", script("# a = 1") + script("# a = 1"), "two"],
  ["text that is no TOML", script("# dependencies = ["), "no TOML"],
  ["dependencies that are no list", script('# dependencies = "numpy"'), "a list of texts"],
])("refuses a script with %s", (_, code, message) => {
  expect(() => readScriptMetadata(code)).toThrow(message);
});
