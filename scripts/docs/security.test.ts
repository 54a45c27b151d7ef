import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { missingTests, namedTests } from "./named-tests.ts";

const page = readFileSync("SECURITY.md", "utf8");

test("each promise names a test", () => {
  const promises = page.match(/^\| (?!promise|---).*\|$/gm) ?? [];
  expect(promises.length).toBeGreaterThan(10);
  // The rows of the contract's table are tests, too.
  for (const promise of promises) {
    expect(promise).toMatch(/`(?:[^`]+\.test|api\/testing\/contract\/[^`]+)\.ts`: /);
  }
});

test("every test that it names exists and runs", async () => {
  expect(await missingTests(namedTests(page))).toEqual([]);
});
