import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { expect, it, test } from "vitest";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import { findCircles, findLongFiles, findWrongImports } from "./check-rooms.ts";
import { closingLines, countLine, type FileResult, isGreen, tierLines, TOLD } from "./reporter.ts";
import { readTestArguments } from "./tiers.ts";

const files = ["api/a.test.ts", "api/b.service.test.ts", "agent/c.engine.test.ts", "d.lab.test.ts"];
const read = (...args: string[]) => readTestArguments(args, files);

test("without arguments: the checks and every tier except the lab", () => {
  expect(read()).toMatchObject({
    checks: true,
    tiers: ["unit", "service", "engine"],
    choosesRows: false,
    vitest: [],
  });
  expect(read("--no-check")).toMatchObject({ checks: false, vitest: [] });
});

test("--all adds the lab", () => {
  expect(read("--all")).toMatchObject({
    checks: true,
    tiers: ["unit", "service", "engine", "lab"],
  });
});

test("--tier runs one tier without the checks", () => {
  expect(read("--tier=lab")).toMatchObject({ checks: false, tiers: ["lab"] });
  expect(() => read("--tier=e2e")).toThrow(
    "--tier=e2e names none of unit, service, engine, zygote, lab",
  );
});

test("a path runs its files, whatever their tier, and sets up only that tier", () => {
  expect(read("d.lab")).toMatchObject({ checks: false, tiers: ["lab"], vitest: ["d.lab"] });
  expect(read("./api/a.test.ts:12")).toMatchObject({ tiers: ["unit"], choosesRows: true });
  expect(read("api/")).toMatchObject({ tiers: ["unit", "service"] });
});

test("a title is not a path", () => {
  expect(read("-t", "d.lab")).toMatchObject({
    tiers: ["unit", "service", "engine"],
    vitest: ["-t", "d.lab"],
    choosesRows: true,
  });
});

test("a path that matches no file is an error", () => {
  expect(() => read("nonesuch")).toThrow("no test file matches nonesuch");
});

test("tests that never fork run in the engine tier only", () => {
  const file = "agent/backends/reap.engine.test.ts";
  expect(readTestArguments([], [file]).tiers).toEqual(["engine"]);
});

test("cases of hostile code run in the engine tier, forked in the zygote tier, and under gVisor in the lab; some are only forked", () => {
  const hostile = ["agent/sandbox/hostile/a.engine.test.ts"];
  expect(readTestArguments([], hostile).tiers).toEqual(["engine", "zygote"]);
  expect(readTestArguments(["--all"], hostile).tiers).toEqual(["engine", "zygote", "lab"]);
  expect(readTestArguments(["--tier=lab", "hostile"], hostile).tiers).toEqual(["lab"]);
  const forked = ["agent/sandbox/hostile/a.zygote.test.ts"];
  expect(readTestArguments(["--all"], forked).tiers).toEqual(["zygote", "lab"]);
});

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
    "unit:",
    "3 passed, 0 failed, 2 skipped",
    "unit took 8.0 s in 1 files",
    "engine:",
    "3 passed, 0 failed",
    "engine took 2.5 s in 1 files",
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

test.each([
  ["passes", "", 0],
  ["fails", "throw new Error()", 1],
  ["runs nothing, which vitest itself would call a success", "skip()", 1],
])("vitest ends as the reporter decides: a run that %s", async (_what, code, expected) => {
  const folder = tempFolder();
  writeFileSync(join(folder, "a.test.mjs"), `test("a", ({ skip }) => { ${code} })`);
  const reporter = resolve("scripts/test/reporter.ts");
  const args = ["run", "--root", folder, "--globals", "--reporter", reporter];
  const told = JSON.stringify({ unavailable: [], choosesRows: true });
  const env = { ...process.env, [TOLD]: told, CI: "1", VITEST: "" };
  const vitest = spawn(process.execPath, [resolve("node_modules/vitest/vitest.mjs"), ...args], {
    env,
  });
  expect(await once(vitest, "exit")).toEqual([expected, null]);
});

test("a run without tests is a failure", () => {
  expect(isGreen(run(), [], false)).toBe(false);
  expect(isGreen(run(file({ failed: 1 })), [], false)).toBe(false);
});

const rooms = { shared: ["shared"], agent: ["agent/low", "agent/high", "agent"], api: ["api"] };

function check(sources: Record<string, string>): string[] {
  return findWrongImports(rooms, Object.keys(sources), (file) => sources[file]!);
}

it("allows imports from the same room and from earlier rooms", () => {
  const found = check({
    "agent/high/a.ts": 'import { b } from "../low/b.ts";\nimport { c } from "./c.ts";',
    "agent/main.ts": 'import { s } from "../shared/s.ts";\nimport p from "../package.json";',
  });
  expect(found).toEqual([]);
});

it.each([
  ["a later room", "agent/low/b.ts", 'import type { A } from "../high/a.ts";', "agent/high/a.ts"],
  ["the other side", "agent/low/b.ts", 'export { x } from "../../api/x.ts";', "api/x.ts"],
  ["a later room, at run time", "agent/low/b.ts", 'await import("../main.ts");', "agent/main.ts"],
  ["a side, from shared", "shared/s.ts", 'import "../api/x.ts";', "api/x.ts"],
])("reports an import from %s", (_, file, text, target) => {
  expect(check({ [file]: text })).toEqual([expect.stringContaining(`must not import ${target}`)]);
});

it("reports a source in no room", () => {
  expect(check({ "agent/new/a.ts": "" })).toEqual([expect.stringContaining("agent/new/a.ts")]);
});

it("leaves tests alone", () => {
  const text = 'import { main } from "../main.ts";';
  expect(check({ "agent/low/b.test.ts": text, "agent/low/testing/b.ts": text })).toEqual([]);
});

it.each([
  ["source", 700, ["api/a.ts", "scripts/b.py"]],
  ["test", 1000, ["api/a.test.ts", "api/testing/world.ts"]],
])("reports a %s of more than %d lines", (_, most, files) => {
  const read = (lines: number) => (): string => "x\n".repeat(lines);
  expect(findLongFiles(files, read(most))).toEqual([]);
  expect(findLongFiles(files, read(most + 1))).toEqual(
    files.map((file) => expect.stringContaining(`${file} has ${most + 1} lines`) as string),
  );
  expect(findLongFiles(["docs/scaling.md"], read(most + 1))).toEqual([]);
});

it.each([
  [
    "files, by types too",
    { "api/a.ts": 'import { b } from "./b.ts";', "api/b.ts": 'import type { A } from "./a.ts";' },
    "api/a.ts → api/b.ts → api/a.ts",
  ],
  [
    "tests",
    { "x/a.test.ts": 'import "./testing/b.ts";', "x/testing/b.ts": 'import "../a.test.ts";' },
    "x/a.test.ts → x/testing/b.ts → x/a.test.ts",
  ],
  [
    "rooms without an order",
    { "x/one/in/a.ts": 'import "../../two/b.ts";', "x/two/b.ts": 'import "../one/c.ts";' },
    "x/one (x/one/in/a.ts) → x/two (x/two/b.ts) → x/one",
  ],
])("reports a circle of %s", (_, sources: Record<string, string>, circle) => {
  const found = findCircles(rooms, Object.keys(sources), (file) => sources[file]!);
  expect(found).toEqual([`imports run in a circle: ${circle}`]);
});

it("reports no circle if two paths lead to one file, and none between tests of rooms", () => {
  const sources: Record<string, string> = {
    "x/one/a.ts": 'import "../two/b.ts";\nimport "./c.ts";',
    "x/two/b.ts": 'import "../three/d.ts";',
    "x/one/c.ts": 'import "../three/d.ts";',
    "x/two/b.test.ts": 'import "../one/a.ts";',
  };
  expect(findCircles(rooms, Object.keys(sources), (file) => sources[file] ?? "")).toEqual([]);
});

test("checks until the condition is true", async () => {
  let asked = 0;
  await waitUntil("the third time", () => ++asked === 3);
  expect(asked).toBe(3);
});

test("names the condition that was not true within the limit, and stops checking", async () => {
  let asked = 0;
  const never = async () => ++asked < 0;
  await expect(waitUntil("the end of the world", never, 50)).rejects.toThrow(
    "waited 50 ms in vain: the end of the world",
  );
  const then = asked;
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(asked).toBe(then);
});
