import { expect, test } from "vitest";
import { measureRow, mergeResults, type Results } from "./results.ts";
import type { Row } from "./row.ts";
import type { World } from "./world.ts";

const world = { quick: false } as World;
const load = { perMinute: 0.1, isHigh: false };
const row: Row = {
  name: "a",
  what: "something",
  goal: "at most 2 ms",
  measure: async () => [
    { name: "Airlock", unit: "ms", samples: [3, 1, 2] },
    { name: "bare engine, 4 at once", unit: "ms", samples: [8] },
  ],
  reaches: (of, has) => of("Airlock").p50 <= 2 && of("bare engine").p50 === 8 && !has("gVisor"),
};

test("a row is measured, summarized and judged", async () => {
  expect(await measureRow(row, world, load)).toMatchObject({
    name: "a",
    goal: "at most 2 ms",
    load: 0.1,
    series: [
      { name: "Airlock", unit: "ms", count: 3, p50: 2 },
      { name: "bare engine, 4 at once", p50: 8 },
    ],
    isReached: true,
  });
  const stricter = { ...row, reaches: () => false };
  expect(await measureRow(stricter, world, load)).toMatchObject({ isReached: false });
});

test("a quick run judges nothing", async () => {
  const quick = { quick: true } as World;
  expect(await measureRow(row, quick, load)).toMatchObject({ isReached: null });
});

test("a goal for a series that was not measured is an error in the row", async () => {
  const wrong: Row = { ...row, reaches: (of) => of("nobody").p50 === 0 };
  await expect(measureRow(wrong, world, load)).rejects.toThrow("the row a measured no nobody");
});

test("new results replace those of the same row, in the order of the rows", async () => {
  const machine = {} as Results["machine"];
  const one = await measureRow(row, world, load);
  const earlier = { machine, rows: [one, { ...one, name: "b" }, { ...one, name: "gone" }] };
  const now = {
    machine,
    rows: [
      { ...one, name: "c" },
      { ...one, goal: "new" },
    ],
  };
  const merged = mergeResults(earlier, now, ["c", "b", "a"]).rows;
  expect(merged.map(({ name, goal }) => [name, goal])).toEqual([
    ["c", one.goal],
    ["b", one.goal],
    ["a", "new"],
  ]);
  expect(mergeResults(null, now, ["a"]).rows).toHaveLength(1);
});
