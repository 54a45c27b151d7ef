import { readFileSync, writeFileSync } from "node:fs";
import type { Load, Machine } from "./machine.ts";
import type { Row, Unit } from "./row.ts";
import { type Summary, summarize } from "./statistics.ts";
import type { World } from "./world.ts";

/** What was measured of a row, or why it was not. */
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
  /** Null where it could not be measured, or nothing is to be reached. */
  readonly isReached: boolean | null;
  readonly obstacle: string | null;
};

export type Results = { readonly machine: Machine; readonly rows: readonly RowResult[] };

/** @throws whatever the row throws. */
export async function measureRow(row: Row, world: World, load: Load): Promise<RowResult> {
  const { name, what, goal } = row;
  const head = {
    name,
    what,
    goal,
    at: new Date().toISOString(),
    load: load.perMinute,
    isLoadHigh: load.isHigh,
    quick: world.quick,
  };
  const obstacle = (await row.obstacle?.(world)) ?? null;
  if (obstacle !== null) return { ...head, series: [], isReached: null, obstacle };

  const measured = await row.measure(world);
  const series = measured.map(({ name, unit, samples }) => ({ name, unit, ...summarize(samples) }));
  const of = (wanted: string): Summary => {
    const found = series.find(({ name }) => name.startsWith(wanted));
    if (!found) throw new Error(`the row ${row.name} measured no ${wanted}`);
    return found;
  };
  const isReached = row.reaches?.(of) ?? null;
  // A few samples say nothing of a goal.
  return { ...head, series, isReached: world.quick ? null : isReached, obstacle };
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
