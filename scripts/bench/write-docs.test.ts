import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Results, RowResult } from "./results.ts";
import { docsFile, filledDocs } from "./write-docs.ts";

const summary = { count: 3, min: 1, p50: 2, p95: 3, p99: 3, max: 3, mad: 1 };

function row(name: string, changes: Partial<RowResult> = {}): RowResult {
  return {
    name,
    what: "",
    goal: "p50 ≤ 3 ms",
    at: "2026-11-21T12:00:00.000Z",
    load: 0,
    isLoadHigh: false,
    quick: false,
    series: [{ name: "Airlock", unit: "ms", ...summary }],
    isReached: true,
    ...changes,
  };
}

const machine = {
  cpu: "one",
  cores: "2 cores",
  memory: "4 GiB",
  kernel: "6",
  node: "v24",
  engine: "docker 20",
  airlock: "1",
};
const fill = (rows: RowResult[]): string => {
  const results: Results = { machine, rows };
  return filledDocs(readFileSync(docsFile, "utf8"), results);
};

test("docs/performance.md takes the results", () => {
  const text = fill([row("warm")]);
  expect(text).toContain("Measured 2026-11-21 on one;");
  expect(text).toContain("| warm | Airlock | 3 | 2 ms | 3 | 3 | ± 1 |  | reached: p50 ≤ 3 ms |\n");
  expect(text).not.toContain("busy**");
});

test("the table marks numbers of a busy machine and missed goals", () => {
  const series = ["ms", "ms", "/s"] as const;
  const text = fill([
    row("warm", {
      isLoadHigh: true,
      isReached: false,
      series: series.map((unit, i) => ({ name: `side ${i}`, unit, ...summary })),
    }),
  ]);
  expect(text).toContain("**The machine was busy** (warm).");
  expect(text).toContain("MISSED: p50 ≤ 3 ms");
  // Only what has the unit of the first is set against it.
  expect(text).toContain("|  | side 1 | 3 | 2 ms | 3 | 3 | ± 1 | 1 × |  |\n");
  expect(text).toContain("|  | side 2 | 3 | 2 /s | 3 | 3 | ± 1 |  |  |\n");
});
