import { expect, test } from "vitest";
import type { FileResult } from "./results.ts";
import { closingLines, countLine, isGreen, tierLines } from "./summary.ts";

const file = (more: Partial<FileResult> = {}): FileResult => ({
  file: "api/a.test.ts",
  tier: "unit",
  startedAt: 1000,
  endedAt: 3500,
  passed: 3,
  failed: 0,
  skipped: [],
  retried: [],
  ...more,
});
const run = (...files: FileResult[]) => ({ files, errorsOutsideTests: 0 });
const noRoot = { title: "x", reason: "only root may do this" };

test("counts what passed and failed", () => {
  expect(countLine(run(file()))).toBe("3 passed, 0 failed");
  expect(countLine(run(file(), file({ failed: 2 })))).toBe("6 passed, 2 failed");
});

test("names skipped tests and files that could not run", () => {
  const unavailable = { what: "engine tests", files: 4, reason: "no engine" };
  expect(countLine(run(file({ skipped: [noRoot] })), [unavailable])).toBe(
    "3 passed, 0 failed, 5 skipped",
  );
});

test("an error outside tests is a failure", () => {
  expect(countLine({ files: [file()], errorsOutsideTests: 1 })).toBe("3 passed, 1 failed");
});

test("each tier ends with a line of counts, then its time from its first file to its last", () => {
  const service = file({ tier: "service", startedAt: 4000, endedAt: 14_000, passed: 1 });
  expect(tierLines([file(), file({ endedAt: 5000 }), service])).toEqual([
    "unit:",
    "6 passed, 0 failed",
    "unit took 4.0 s in 2 files",
    "service:",
    "1 passed, 0 failed",
    "service took 10.0 s in 1 files",
  ]);
});

test("the run ends with the slowest files, second tries, what was not possible, times and all counts", () => {
  const again = { title: "a > b", error: "no answer\nat all" };
  const engine = file({ file: "b.engine.test.ts", tier: "engine", retried: [again] });
  const disk = file({ file: "d.test.ts", endedAt: 9000, skipped: [noRoot, noRoot] });
  const unavailable = { what: "lab tests", files: 2, reason: "no engine" };
  expect(closingLines(run(engine, disk), [unavailable])).toEqual([
    "slowest files:",
    "     8.0 s  d.test.ts",
    "     2.5 s  b.engine.test.ts",
    "passed at the second try:",
    "  b.engine.test.ts: a > b",
    "    the first try failed: no answer",
    "not possible on this machine:",
    "  lab tests (2 files): no engine",
    "  d.test.ts: 2 rows: only root may do this",
    "time:",
    "  unit took 8.0 s in 1 files",
    "  engine took 2.5 s in 1 files",
    "6 passed, 0 failed, 4 skipped",
  ]);
});

test("at most ten files are listed as slow", () => {
  const lines = closingLines(run(...Array.from({ length: 12 }, () => file())), []);
  expect(lines.filter((line) => line.includes("api/a.test.ts"))).toHaveLength(10);
});

test("a skipped test is a failure under CI only", () => {
  const skipping = run(file({ skipped: [noRoot] }));
  expect(isGreen(skipping, [], false)).toBe(true);
  expect(isGreen(skipping, [], true)).toBe(false);
  expect(isGreen(run(file()), [{ what: "lab", files: 1, reason: "" }], true)).toBe(false);
  expect(isGreen(run(file()), [], true)).toBe(true);
});

test("a run without tests is a failure", () => {
  expect(isGreen(run(), [], false)).toBe(false);
  expect(isGreen(run(file({ failed: 1 })), [], false)).toBe(false);
});
