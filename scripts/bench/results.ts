import { readFileSync, writeFileSync } from "node:fs";
import type { Load, Machine } from "./machine.ts";
import type { Row, Unit } from "./row.ts";
import { type Summary, summarize } from "./statistics.ts";
import type { World } from "./world.ts";

/** What was measured of a row. */
export type RowResult = {
  readonly name: string;
  readonly what: string;
  readonly goal: string;
  readonly at: string;
  /** Load average of the machine when the bench began. */
  readonly load: number;
  readonly isLoadHigh: boolean;
  readonly quick: boolean;
  readonly series: readonly (Summary & { readonly name: string; readonly unit: Unit })[];
  /** Null where too little was measured. */
  readonly isReached: boolean | null;
};

export type Results = { readonly machine: Machine; readonly rows: readonly RowResult[] };

/** @throws whatever the row throws. */
export async function measureRow(row: Row, world: World, load: Load): Promise<RowResult> {
  const { name, what, goal } = row;
  const at = new Date().toISOString();
  const measured = await row.measure(world);
  const series = measured.map(({ name, unit, samples }) => ({ name, unit, ...summarize(samples) }));
  const find = (wanted: string) => series.find(({ name }) => name.startsWith(wanted));
  const of = (wanted: string): Summary => {
    const found = find(wanted);
    if (!found) throw new Error(`the row ${row.name} measured no ${wanted}`);
    return found;
  };
  const isReached = row.reaches(of, (wanted) => find(wanted) !== undefined);
  return {
    name,
    what,
    goal,
    at,
    load: load.perMinute,
    isLoadHigh: load.isHigh,
    quick: world.quick,
    series,
    // A few samples say nothing of a goal.
    isReached: world.quick ? null : isReached,
  };
}

/** Rows of the same name are replaced, others kept. */
export function mergeResults(
  earlier: Results | null,
  { machine, rows }: Results,
  order: readonly string[],
): Results {
  const kept = (earlier?.rows ?? []).filter(({ name }) => !rows.some((row) => row.name === name));
  const all = [...kept, ...rows].filter(({ name }) => order.includes(name));
  return { machine, rows: all.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name)) };
}

export function readResults(file: string): Results | null {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Results;
  } catch {
    return null;
  }
}

export function writeResults(file: string, results: Results): void {
  writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
}
