import { expect, test } from "vitest";
import { faultKinds, makePlan, partsOf } from "./plan.ts";

const hourMs = 3_600_000;
const parts = partsOf.servers;

test("equal seeds make equal plans, and different ones different plans", () => {
  expect(makePlan(7, hourMs, 12_000, parts)).toEqual(makePlan(7, hourMs, 12_000, parts));
  expect(makePlan(7, hourMs, 12_000, parts)).not.toEqual(makePlan(8, hourMs, 12_000, parts));
});

test("an hour has every kind of fault on every part, and never two at once on one part", () => {
  const plan = makePlan(1, hourMs, 12_000, parts);
  const partOf = new Map(faultKinds.map(({ name, part }) => [name, part]));
  for (const { name, part } of faultKinds) {
    const befallen = new Set(plan.filter(({ kind }) => kind === name).map(({ on }) => on));
    expect([name, befallen.size]).toEqual([name, parts[part]]);
  }
  const mendedMs = new Map<string, number>();
  for (const { atMs, kind, on, forMs } of plan) {
    const part = `${partOf.get(kind)} ${on}`;
    expect(atMs).toBeGreaterThan(mendedMs.get(part) ?? 0);
    mendedMs.set(part, atMs + forMs);
  }
});
