import { expect, test } from "vitest";
import { fillSections } from "./sections.ts";

const text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n<!-- y:begin -->\n<!-- y:end -->\n";

test("replaces only the text between the markers", () => {
  expect(fillSections(text, { x: "$1 new\n" })).toBe(
    "a\n<!-- x:begin -->\n$1 new\n<!-- x:end -->\nb\n<!-- y:begin -->\n<!-- y:end -->\n",
  );
});

test("a missing marker is an error", () => {
  expect(() => fillSections(text, { z: "" })).toThrow('the markers of "z" are missing');
});
