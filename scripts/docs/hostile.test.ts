import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { collectTitles } from "./named-tests.ts";

/** Number of kinds of hostile code. A test of a kind has its number in its title. */
const listLength = 35;

test("every case of hostile code has a test with its number, which runs", async () => {
  const numbered = /^hostile (\d+): /;
  const files = globSync("{api,agent,shared,scripts}/**/*.test.ts");
  const mentioning = files.filter((file) => readFileSync(file, "utf8").includes("hostile "));
  const titles = [...(await collectTitles(mentioning)).values()].flat();
  const numbers = new Set(titles.map((title) => Number(numbered.exec(title)?.[1])));
  const all = Array.from({ length: listLength }, (_, i) => i + 1);
  expect(all.filter((n) => !numbers.has(n))).toEqual([]);
});
