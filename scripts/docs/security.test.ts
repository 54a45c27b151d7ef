import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (path: string): string =>
  readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

/** The tests that SECURITY.md names, as `file`: title. */
const named = [...read("SECURITY.md").matchAll(/`([a-z/.-]+\.test\.ts)`: (.+?)(?= ·| \|)/g)].map(
  ([, file = "", title = ""]) => ({ file, title }),
);

test("each promise names a test", () => {
  const promises = read("SECURITY.md").match(/^\| (?!promise|---).*\|$/gm) ?? [];
  expect(promises.length).toBeGreaterThan(10);
  for (const promise of promises) expect(promise).toMatch(/`[^`]+\.test\.ts`: /);
});

test.each(named)("SECURITY.md: $file has a test $title", ({ file, title }) => {
  expect(read(file)).toContain(`"${title}"`);
});
