import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { GUEST_TESTS, IMAGE_TESTS } from "./engine-tests.ts";

test("the files of tests that the guest runs exist", () => {
  expect([...GUEST_TESTS, ...IMAGE_TESTS].filter((file) => !existsSync(file))).toEqual([]);
});
