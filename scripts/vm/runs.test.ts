import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { tiersOf } from "../test/tiers.ts";
import { runs } from "./runs.ts";

test.each(runs)("the files of the run $name exist, are of one tier, and have its tests", (run) => {
  const sources = run.files.map((file) => readFileSync(file, "utf8")).join();
  for (const title of run.rows?.source.split("|") ?? []) expect(sources).toContain(title);
  expect(new Set(run.files.map((file) => tiersOf(file)[0])).size).toBe(1);
});
