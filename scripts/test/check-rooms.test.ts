import { expect, it } from "vitest";
import { findCircles, findLongFiles, findWrongImports } from "./check-rooms.ts";

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
])("reports a %s of more than %d lines, unless a script writes it", (_, most, files) => {
  const read = (lines: number) => (): string => "x\n".repeat(lines);
  expect(findLongFiles(files, read(most))).toEqual([]);
  expect(findLongFiles(files, read(most + 1))).toEqual(
    files.map((file) => expect.stringContaining(`${file} has ${most + 1} lines`) as string),
  );
  const others = ["docs/scaling.md", "clients/python/src/airlock/types.py"];
  expect(findLongFiles(others, read(most + 1))).toEqual([]);
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
