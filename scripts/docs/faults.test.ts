import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { missingTests, namedTests } from "./named-tests.ts";

const page = readFileSync("docs/faults.md", "utf8");
const rows = [...page.matchAll(/^\| (\d+) \| .+ \| .+ \| (.+) \|$/gm)];

/** Number of faults on the page. */
const listLength = 17;

test("every fault is listed, numbered without a gap, and has a test", () => {
  const all = Array.from({ length: listLength }, (_, i) => i + 1);
  expect(rows.map(([, number]) => Number(number))).toEqual(all);
  const untested = rows.filter(([, , tests = ""]) => namedTests(`${tests} |\n`).length === 0);
  expect(untested.map(([row]) => row)).toEqual([]);
});

test("every test that it names exists and runs", async () => {
  expect(await missingTests(namedTests(page))).toEqual([]);
});
