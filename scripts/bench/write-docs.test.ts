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
    obstacle: null,
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

test("docs/performance.md takes the results and the trace", () => {
  const text = fill([row("warm"), row("trace", { isReached: null })]);
  expect(text).toContain("Measured 2026-11-21 on one;");
  expect(text).toContain("| warm | Airlock | 3 | 2 ms | 3 | 3 | ± 1 |  | reached: p50 ≤ 3 ms |\n");
  expect(text).toContain("| Airlock | 2.0 | 3.0 |\n");
  expect(text).not.toContain("busy**");
});

test("numbers of a busy machine, missed goals and rows that were not measured say so", () => {
  const text = fill([
    row("warm", { isLoadHigh: true, isReached: false }),
    row("cold", { obstacle: "no engine", series: [], isReached: null }),
  ]);
  expect(text).toContain("**The machine was busy** (warm).");
  expect(text).toContain("MISSED: p50 ≤ 3 ms");
  expect(text).toContain("| cold | not measured: no engine |");
});
