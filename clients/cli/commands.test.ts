import { expect, test } from "vitest";
import { UsageError } from "./exit.ts";
import { targetIn } from "./files.ts";
import { type EndedRecord, exitCodeOfRecord, explainEnd } from "./follow.ts";
import { readScriptMetadata, satisfiesPython } from "./run.ts";
import { isComplete } from "./sessions.ts";
import { chooseByEnd } from "./tool.ts";

const ids = ["01a2-aaaa1111", "01a2-bbbb1111", "01a2-cccc2222"];

test("the end of one id chooses it", () => {
  expect(chooseByEnd(ids, "2222", "job")).toBe("01a2-cccc2222");
  expect(chooseByEnd(ids, "b1111", "job")).toBe("01a2-bbbb1111");
});

test("the end of several ids is refused, and so is that of none", () => {
  expect(() => chooseByEnd(ids, "1111", "job")).toThrow(
    new UsageError("the ids of 2 jobs end with 1111: give more characters"),
  );
  expect(() => chooseByEnd(ids, "01a2", "session")).toThrow(
    /^none of the newest 100 sessions has an id/,
  );
});

test.each(["../a", "/etc/passwd", "a/../../b", ".", ""])(
  "an artifact named %j is not saved outside the folder",
  (name) => {
    expect(() => targetIn("out", name)).toThrow("outside out");
  },
);

test("an artifact in a folder is saved in that folder", () => {
  expect(targetIn("out", "plots/a.png")).toBe("out/plots/a.png");
});

// The message says more than the traceback that the code has written.
const message = "ModuleNotFoundError: No module named 'a'. The requirements were not installed";
const error = { type: "import_error", message };

test.each([
  [{ status: "succeeded", exit_code: 0 }, 0],
  [{ status: "failed", exit_code: 3, error }, 3],
  [{ status: "failed", exit_code: 0, error: { type: "json_error", message } }, 1],
  [{ status: "failed", exit_code: null, error }, 125],
  [{ status: "failed", exit_code: null, error: { type: "compile_error", message } }, 1],
])("the command fails where the record says so: %o", (record, code) => {
  expect(exitCodeOfRecord(record as unknown as EndedRecord)).toBe(code);
});

test.each([
  [{ status: "succeeded", exit_code: 0, error: null }, undefined],
  [{ status: "failed", exit_code: 1, error }, `failed (exit code 1): import_error: ${message}`],
  [{ status: "timeout", exit_code: null, error }, `timeout: import_error: ${message}`],
  [{ status: "cancelled", exit_code: null, error: null }, "cancelled"],
  [
    { status: "cancelled", exit_code: 143, error: { type: "cancelled", message: "It was." } },
    "cancelled (exit code 143): It was.",
  ],
])("the end of a job is shown with its whole message: %o", (record, told) => {
  expect(explainEnd(record as unknown as EndedRecord)).toBe(told);
});

test.each([
  [">=3.11", "3.13", true],
  [">=3.14", "3.13", false],
  [">=3.13.4", "3.13", true],
  [">=3.13.4", "3.13.2", false],
  [">=3.9, <3.13", "3.13", false],
  [">=3.9,<4", "3.13", true],
  ["<3.13.5", "3.13", true],
  [">3.13", "3.13", true],
  ["<=3.12", "3.13", false],
  ["==3.12.*", "3.13", false],
  ["==3.*", "3.13", true],
  ["==3.13", "3.13", true],
  ["==3.13", "3.13.2", false],
  ["!=3.13.*", "3.13", false],
  ["!=3.13.1", "3.13", true],
  ["~=3.11", "3.13", true],
  ["~=3.11.2", "3.13", false],
  ["~=3.13.2", "3.13", true],
])("requires-python %s of a job type with %s: %s", (required, version, satisfied) => {
  expect(satisfiesPython(required, version)).toBe(satisfied);
});

test("what is not a version specifier is refused", () => {
  expect(() => satisfiesPython("3.11", "3.13")).toThrow('must look like ">=3.11", not "3.11"');
});

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

test.each([
  ["x = 1", true],
  ["", true],
  ["f(1,", false],
  ["f(1,\n2)", true],
  ["x = {'a': 1}", true],
  ["s = '''a", false],
  ["s = '''a\nb'''", true],
  ["s = '(' # [", true],
  ["s = 'it\\'s ('", true],
  ["s = 'never ended", true],
  ["x = 1 + \\", false],
  ["for n in range(3):", false],
  ["for n in range(3):\n    print(n)", false],
  ["for n in range(3):\n    print(n)\n", true],
  ["if a: # why\n    b", false],
  ["d = {\n'a':\n1}", true],
  ["@cache", false],
  ["@cache\ndef f(): return 1\n", true],
  [")", true],
])("%j: %j", (text, isWhole) => {
  expect(isComplete(text.split("\n"))).toBe(isWhole);
});
