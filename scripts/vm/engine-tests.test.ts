import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { GUEST_TESTS, IMAGE_TESTS } from "./engine-tests.ts";

test.each([...GUEST_TESTS, ...IMAGE_TESTS])(
  "$file, which the guest runs, exists and has the rows",
  ({ file, rows }) => {
    const source = readFileSync(file, "utf8");
    for (const title of rows?.source.split("|") ?? []) expect(source).toContain(title);
  },
);
