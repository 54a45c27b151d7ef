import { expect, test } from "vitest";
import { satisfiesPython } from "./python-version.ts";

test.each([
  [">=3.11", "3.13", true],
  [">=3.14", "3.13", false],
  [">=3.13.4", "3.13", true],
  [">=3.13.4", "3.13.2", false],
  [">=3.9, <3.13", "3.13", false],
  [">=3.9,<4", "3.13", true],
  ["<3.13.5", "3.13", true],
  [">3.13", "3.13", true],
  ["<=3.12", "3.13", false],
  ["==3.12.*", "3.13", false],
  ["==3.*", "3.13", true],
  ["==3.13", "3.13", true],
  ["==3.13", "3.13.2", false],
  ["!=3.13.*", "3.13", false],
  ["!=3.13.1", "3.13", true],
  ["~=3.11", "3.13", true],
  ["~=3.11.2", "3.13", false],
  ["~=3.13.2", "3.13", true],
])("requires-python %s of a job type with %s: %s", (required, version, satisfied) => {
  expect(satisfiesPython(required, version)).toBe(satisfied);
});

test("what is not a version specifier is refused", () => {
  expect(() => satisfiesPython("3.11", "3.13")).toThrow('must look like ">=3.11", not "3.11"');
});
