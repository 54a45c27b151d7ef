import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { interleave, percentile, rate, type Row, summarize } from "./measure.ts";
import {
  benchHelp,
  docsFile,
  filledDocs,
  measureRow,
  mergeResults,
  parseBenchOptions,
  type Results,
  type RowResult,
} from "./results.ts";
import type { World } from "./world.ts";

test("the default is all rows with all samples", () => {
  expect(parseBenchOptions([], ["a"])).toEqual({
    help: false,
    only: [],
    quick: false,
    markdown: false,
    writeDocs: false,
  });
  expect(parseBenchOptions(["--only", "a", "--only=b", "--quick"], ["a", "b"])).toMatchObject({
    only: ["a", "b"],
    quick: true,
  });
});

test("an unknown row is refused, with the names of known rows", () => {
  expect(() => parseBenchOptions(["--only", "c"], ["a", "b"])).toThrow(
    "--only c: no such row; there are a, b",
  );
});

test("results of a quick run do not get into the docs", () => {
  expect(() => parseBenchOptions(["--quick", "--write-docs"], [])).toThrow("too little");
});

test("an unknown option is refused, with a way to the list", () => {
  expect(() => parseBenchOptions(["--onyl"], [])).toThrow(/--onyl[^]*npm run bench -- --help/);
});

test("the help lists the rows", () => {
  expect(benchHelp([{ name: "warm", what: "hello" }])).toMatch(/warm +hello/);
});

describe("results", () => {
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
});

describe("write docs", () => {
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
    expect(text).toContain(
      "| warm | Airlock | 3 | 2 ms | 3 | 3 | ± 1 |  | reached: p50 ≤ 3 ms |\n",
    );
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
});

test("sides take turns, and a warm-up leaves no sample", async () => {
  const calls: string[] = [];
  const side = (name: string, perRound?: number) => ({
    name,
    once: async () => calls.push(name),
    ...(perRound !== undefined && { perRound }),
  });
  const series = await interleave("ms", [side("a", 2), side("b")], { warmUp: 1, rounds: 2 });
  expect(calls.join("")).toBe("aabaabaab");
  expect(series).toEqual([
    { name: "a", unit: "ms", samples: [4, 5, 7, 8] },
    { name: "b", unit: "ms", samples: [6, 9] },
  ]);
});

test("keeps the workers busy, and does not count the warm-up", async () => {
  let begun = 0;
  let open = 0;
  let most = 0;
  const perSecond = await rate(3, { leadInMs: 1000, forMs: 2000 }, async () => {
    begun += 1;
    most = Math.max(most, (open += 1));
    await sleep(20);
    open -= 1;
  });
  expect(most).toBe(3);
  expect(open).toBe(0);
  const done = perSecond * 2;
  expect(done).toBeGreaterThan(0);
  // At the least the first of each worker was over before the lead-in was.
  expect(done).toBeLessThanOrEqual(begun - 3);
});

test("a task that fails ends the measurement", async () => {
  const failing = rate(2, { leadInMs: 0, forMs: 50 }, () => Promise.reject(new Error("no")));
  await expect(failing).rejects.toThrow("no");
});

const toHundred = Array.from({ length: 100 }, (_, i) => i + 1);

test.each([
  [0, 1],
  [1, 1],
  [50, 50],
  [95, 95],
  [99, 99],
  [99.5, 100],
  [100, 100],
])("percentile %i of 1 to 100 is %i", (percent, sample) => {
  expect(percentile(toHundred, percent)).toBe(sample);
});

test("a percentile is one of the samples, however few there are", () => {
  expect(percentile([3], 99)).toBe(3);
  expect(percentile([3, 7], 50)).toBe(3);
  expect(percentile([3, 7], 51)).toBe(7);
});

test("the order of the samples does not matter, and it is not changed", () => {
  const samples = [10, 9, 100, 1, 2];
  expect(summarize(samples)).toEqual({
    count: 5,
    min: 1,
    p50: 9,
    p95: 100,
    p99: 100,
    max: 100,
    mad: 7,
  });
  expect(samples).toEqual([10, 9, 100, 1, 2]);
});

test("one outlier does not change the spread", () => {
  expect(summarize([10, 10, 11, 9, 5000]).mad).toBe(1);
});

test("a measurement without samples is an error", () => {
  expect(() => summarize([])).toThrow("no sample");
});
