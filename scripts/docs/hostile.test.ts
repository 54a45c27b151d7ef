import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { collectTitles } from "./named-tests.ts";

/**
 * First and last numbers of kinds of hostile code. A test of a kind has its number in its title. 36 to 44 concern
 * zygotes; the tests of agent/fork/ have no numbers.
 */
const listed = [
  [1, 35],
  [45, 53],
] as const;

test("every case of hostile code has a test with its number, which runs", async () => {
  const numbered = /^hostile (\d+): /;
  const files = globSync("{api,agent,shared,scripts}/**/*.test.ts");
  const mentioning = files.filter((file) => readFileSync(file, "utf8").includes("hostile "));
  const titles = [...(await collectTitles(mentioning)).values()].flat();
  const numbers = new Set(titles.map((title) => Number(numbered.exec(title)?.[1])));
  const all = listed.flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, i) => first + i),
  );
  expect(all.filter((n) => !numbers.has(n))).toEqual([]);
});
