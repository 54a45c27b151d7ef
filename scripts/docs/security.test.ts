import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { hasTitle, namedTests } from "./named-tests.ts";

const page = readFileSync("SECURITY.md", "utf8");

test("each promise names a test", () => {
  const promises = page.match(/^\| (?!promise|---).*\|$/gm) ?? [];
  expect(promises.length).toBeGreaterThan(10);
  // The rows of the contract's table are tests, too.
  for (const promise of promises) {
    expect(promise).toMatch(/`(?:[^`]+\.test|api\/testing\/contract\/[^`]+)\.ts`: /);
  }
});

test.each(namedTests(page))("SECURITY.md: $file has a test $title", ({ file, title }) => {
  expect(hasTitle(readFileSync(file, "utf8"), title)).toBe(true);
});
