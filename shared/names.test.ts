import { expect, test } from "vitest";
import { languageOfFile } from "./languages.ts";
import { matchesPattern, nearest } from "./names.ts";

test.each([
  ["a", "a", true],
  ["a", "ab", false],
  ["a", "ba", false],
  ["", "", true],
  ["*", "", true],
  ["*", "a.b:c", true],
  ["*", "a/b", false],
  ["*/*", "a/b", true],
  ["a*", "a", true],
  ["a*a", "a", false],
  ["a*a", "aa", true],
  ["*b*", "abc", true],
  ["a*b*c", "axbxc", true],
  ["a*b*c", "acb", false],
  ["a**c", "abc", true],
  ["a.c", "abc", false],
  ["r/*/t:*", "r/team/t:1", true],
  ["r/*/t:*", "r/t:1", false],
  ["r/*", "r/team/t", false],
])("%s matches %s: %s", (pattern, name, taken) => {
  expect(matchesPattern(pattern, name)).toBe(taken);
});

test("a pattern with many stars is matched as fast as any other", () => {
  const name = "a".repeat(100_000);
  expect(matchesPattern(`${"*a".repeat(20_000)}b`, name)).toBe(false);
  expect(matchesPattern("*a".repeat(20_000), name)).toBe(true);
});

const names = ["default", "python", "python-ml", "science"];

test.each([
  ["pyton", "python"],
  ["scinece", "science"],
  ["python-mll", "python-ml"],
  ["defalt", "default"],
  ["nowhere", undefined],
  ["x", undefined],
  ["", undefined],
])("%j is taken for %j", (word, meant) => {
  expect(nearest(word, names)).toBe(meant);
});

test("of two that are equally near, the first one is taken", () => {
  expect(nearest("cat", ["bat", "hat"])).toBe("bat");
});

test.each([
  ["prog.cpp", "cpp"],
  ["a.dir/prog.c", "c"],
  ["prog.py", "python"],
  ["abc", undefined],
  ["a.c/args", undefined],
  ["-", undefined],
])("the language of %s is %s", (name, language) => {
  expect(languageOfFile(name)).toBe(language);
});
