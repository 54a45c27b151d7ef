import { expect, test } from "vitest";
import { isComplete } from "./is-complete.ts";

test.each([
  ["x = 1", true],
  ["", true],
  ["f(1,", false],
  ["f(1,\n2)", true],
  ["x = {'a': 1}", true],
  ["s = '''a", false],
  ["s = '''a\nb'''", true],
  ["s = '(' # [", true],
  ["s = 'it\\'s ('", true],
  ["s = 'never ended", true],
  ["x = 1 + \\", false],
  ["for n in range(3):", false],
  ["for n in range(3):\n    print(n)", false],
  ["for n in range(3):\n    print(n)\n", true],
  ["if a: # why\n    b", false],
  ["d = {\n'a':\n1}", true],
  ["@cache", false],
  ["@cache\ndef f(): return 1\n", true],
  [")", true],
])("%j: %j", (text, isWhole) => {
  expect(isComplete(text.split("\n"))).toBe(isWhole);
});
