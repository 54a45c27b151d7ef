import { readFileSync, writeFileSync } from "node:fs";
import { fillSections } from "../docs/sections.ts";
import type { Results } from "./results.ts";
import { markdownTable, tableCells } from "./table.ts";

export const docsFile = "docs/performance.md";

/** Brings the table of docs/performance.md up to date with what was measured. */
export function writeDocs(results: Results): void {
  writeFileSync(docsFile, filledDocs(readFileSync(docsFile, "utf8"), results));
}

/** The page with a table of all rows. */
export function filledDocs(page: string, { machine, rows }: Results): string {
  const [first] = rows;
  const busy = rows.filter(({ isLoadHigh }) => isLoadHigh).map(({ name }) => name);
  const caveat = busy.length > 0 ? ` **The machine was busy** (${busy.join(", ")}).` : "";
  const on = `Measured ${first?.at.slice(0, 10) ?? "never"} on ${Object.values(machine).join("; ")}.`;
  return fillSections(page, {
    results: `${on}${caveat}\n\n${markdownTable(tableCells(rows))}`,
  });
}
