import { expect, test } from "vitest";
import { nearest } from "./nearest.ts";

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
