import { expect, test } from "vitest";
import { languageOfFile } from "./languages.ts";

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
