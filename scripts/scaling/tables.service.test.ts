import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { markdownTable } from "../bench/table.ts";
import { fillSections } from "../docs/sections.ts";
import { operations } from "./operations.ts";
import { assumptionTable } from "./tables.ts";

const page = readFileSync("docs/scaling.md", "utf8");

test("docs/scaling.md has the current assumptions (npm run scaling -- --write-docs writes them)", () => {
  expect(fillSections(page, { assumptions: markdownTable(assumptionTable()) })).toBe(page);
});

test("docs/scaling.md has each operation, and a place for each table", () => {
  for (const what of Object.values(operations)) expect(page).toContain(`\n| ${what} |`);
  for (const name of ["operations", "load", "limits"]) {
    expect(() => fillSections(page, { [name]: "" })).not.toThrow();
  }
});
