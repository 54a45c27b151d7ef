import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { hasTitle, namedTests } from "./named-tests.ts";

const page = readFileSync("docs/faults.md", "utf8");
const rows = [...page.matchAll(/^\| (\d+) \| .+ \| .+ \| (.+) \|$/gm)];

/** As many as the list of faults that the service must hold against. */
const listLength = 16;

test("every fault is there, numbered without a gap, and has a test", () => {
  const all = Array.from({ length: listLength }, (_, i) => i + 1);
  expect(rows.map(([, number]) => Number(number))).toEqual(all);
  const untested = rows.filter(([, , tests = ""]) => namedTests(`${tests} |\n`).length === 0);
  expect(untested.map(([row]) => row)).toEqual([]);
});

test.each(namedTests(page))("docs/faults.md: $file has a test $title", ({ file, title }) => {
  const path = file.replace(/^contract\//, "api/testing/contract/");
  expect(hasTitle(readFileSync(path, "utf8"), title)).toBe(true);
});
