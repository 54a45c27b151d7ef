import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { missingTests, namedTests } from "./named-tests.ts";

const page = readFileSync("docs/contract.md", "utf8");
const rows = [...page.matchAll(/^\| (\d+)\.(\d+) \| (.+?) \| (.+) \|$/gm)];

test("every section of the contract is there, with its statements numbered without a gap", () => {
  const numbers = rows.map(([, section, number]) => [Number(section), Number(number)] as const);
  const sections = [...new Set(numbers.map(([section]) => section))];
  expect(sections).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  for (const section of sections) {
    const own = numbers.filter(([at]) => at === section).map(([, number]) => number);
    expect(own).toEqual(own.map((_, i) => i + 1));
  }
});

test("every statement has a test, or a dash", () => {
  const empty = rows.filter(
    ([, , , , tests = ""]) => tests !== "—" && !namedTests(`${tests} |\n`)[0],
  );
  expect(empty.map(([row]) => row)).toEqual([]);
});

test("every test that it names is there, and runs", async () => {
  expect(await missingTests(namedTests(page))).toEqual([]);
});
