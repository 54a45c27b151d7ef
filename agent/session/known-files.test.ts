import { expect, test } from "vitest";
import { createKnownFiles } from "./known-files.ts";

test("a file is known with its last content, and the last names only", () => {
  const known = createKnownFiles(2);
  const learn = (name: string, sha256: string) => known.learn({ name, sha256 });
  expect([learn("a", "1"), learn("a", "1"), learn("a", "2"), learn("a", "1")]).toEqual([
    false,
    true,
    false,
    false,
  ]);
  expect([learn("b", "1"), learn("a", "1"), learn("c", "1")]).toEqual([false, true, false]);
  expect([learn("a", "1"), learn("b", "1")]).toEqual([true, false]);
});
