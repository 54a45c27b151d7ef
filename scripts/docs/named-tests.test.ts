import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { collectTitles, missingTests, namedTests } from "./named-tests.ts";
import { tempFolder } from "../../shared/testing/temp-folder.ts";

const source = `
import { describe, it, test } from "vitest";
const mentioned = "only mentioned";
// test("in a comment", () => {});
test("runs", () => {});
it.each([["a value"]])("runs with %s", () => {});
describe("a suite", () => { test("runs in a suite", { timeout: 1 }, () => {}); });
test.skip("is skipped", () => {});
it.todo("is to do");
describe.skip("a skipped suite", () => { test("is skipped with its suite", () => {}); });
`;

function sourceFile(): string {
  const folder = tempFolder();
  const file = join(folder, "a.test.ts");
  writeFileSync(file, source);
  return file;
}

test("titles are those of tests that run, not of skipped tests or other strings", async () => {
  const file = sourceFile();
  expect((await collectTitles([file])).get(file)).toEqual([
    "runs",
    "runs with %s",
    "runs in a suite",
    "a suite",
  ]);
});

test("a row of the contract counts where the contract's table has it", async () => {
  const file = "api/testing/contract/probes.ts";
  const titles = (await collectTitles([file])).get(file) ?? [];
  expect(titles.length).toBeGreaterThan(0);
  expect(await missingTests([{ file, title: titles[0]! }])).toEqual([]);
  expect(await missingTests([{ file, title: "no such rule" }])).toHaveLength(1);
});

test("a title must be complete, except for its …", async () => {
  const file = sourceFile();
  const named = ["runs", "runs …", "run", "is skipped"].map((title) => ({ file, title }));
  expect((await missingTests(named)).map(({ title }) => title)).toEqual(["run", "is skipped"]);
});

test("a row of a table of tests is named with its values, which are in the file", async () => {
  const file = sourceFile();
  const named = ["a value", "…", "another"].map((with_) => ({ file, title: `runs with ${with_}` }));
  expect(await missingTests(named)).toEqual([{ file, title: "runs with another" }]);
});

test("a page's table names tests as `file`: title", () => {
  const page = "| a | `x/a.test.ts`: one · `x/b.ts`: two |\n";
  expect(namedTests(page)).toEqual([
    { file: "x/a.test.ts", title: "one" },
    { file: "x/b.ts", title: "two" },
  ]);
});
