import type { RowResult } from "./results.ts";

const TITLES = ["row", "side", "n", "p50", "p95", "p99", "spread", "p50 to the first", "goal"];

/** A line per side: numbers in the unit of the side, its p50 against that of the row's first side. */
export function tableCells(rows: readonly RowResult[]): string[][] {
  return [TITLES, ...rows.flatMap(rowCells)];
}

function rowCells({ name, goal, series, isReached }: RowResult): string[][] {
  const [first] = series;
  return series.map((side, i) => [
    i === 0 ? name : "",
    side.name,
    String(side.count),
    `${number(side.p50)} ${side.unit}`,
    number(side.p95),
    number(side.p99),
    `± ${number(side.mad)}`,
    i === 0 || side.unit !== first?.unit ? "" : `${number(side.p50 / first.p50)} ×`,
    i === 0 ? `${isReached === null ? "" : isReached ? "reached: " : "MISSED: "}${goal}` : "",
  ]);
}

/** Three digits that count, no exponent. */
function number(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export function plainTable(cells: readonly string[][]): string {
  const widths = (cells[0] ?? []).map((_, column) =>
    Math.max(...cells.map((line) => line[column]?.length ?? 0)),
  );
  const lines = cells.map((line) =>
    line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  "),
  );
  return lines.map((line) => `${line.trimEnd()}\n`).join("");
}

export function markdownTable(cells: readonly string[][]): string {
  const [titles = [], ...lines] = cells;
  return [titles, titles.map(() => "---"), ...lines]
    .map((line) => `| ${line.join(" | ")} |\n`)
    .join("");
}
