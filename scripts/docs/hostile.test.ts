import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

/** Tests carry the numbers of the list of hostile code, which a reader can search for. */
const listLength = 35;

test("every case of hostile code has a test with its number", () => {
  const files = globSync("{api,agent,shared,scripts}/**/*.test.ts");
  const text = files.map((file) => readFileSync(file, "utf8")).join();
  const numbers = new Set([...text.matchAll(/["`]hostile (\d+): /g)].map(([, n]) => Number(n)));
  const all = Array.from({ length: listLength }, (_, i) => i + 1);
  expect(all.filter((n) => !numbers.has(n))).toEqual([]);
});
