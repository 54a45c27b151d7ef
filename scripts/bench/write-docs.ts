import { readFileSync, writeFileSync } from "node:fs";
import { fillSections } from "../docs/sections.ts";
import type { Results, RowResult } from "./results.ts";
import { markdownTable, tableCells } from "./table.ts";

export const docsFile = "docs/performance.md";

/** Brings the tables of docs/performance.md up to date with what was measured. */
export function writeDocs(results: Results): void {
  writeFileSync(docsFile, filledDocs(readFileSync(docsFile, "utf8"), results));
}

/** The page with a table of all rows, and one of the trace. */
export function filledDocs(page: string, { machine, rows }: Results): string {
  const [first] = rows;
  const busy = rows.filter(({ isLoadHigh }) => isLoadHigh).map(({ name }) => name);
  const caveat = busy.length > 0 ? ` **The machine was busy** (${busy.join(", ")}).` : "";
  const on = `Measured ${first?.at.slice(0, 10) ?? "never"} on ${Object.values(machine).join("; ")}.`;
  return fillSections(page, {
    results: `${on}${caveat}\n\n${markdownTable(tableCells(rows.filter((row) => !isTrace(row))))}`,
    trace: markdownTable(traceCells(rows.find(isTrace))),
  });
}

function isTrace({ name }: RowResult): boolean {
  return name === "trace";
}

function traceCells(row: RowResult | undefined): string[][] {
  const cells = (row?.series ?? []).map(({ name, p50, p95 }) => [
    name,
    p50.toFixed(1),
    p95.toFixed(1),
  ]);
  return [["step", "p50, ms", "p95, ms"], ...cells];
}
