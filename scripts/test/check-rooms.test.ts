import { expect, it } from "vitest";
import { findLongFiles, findWrongImports } from "./check-rooms.ts";

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

it("reports a source or test of more than 300 lines, unless a script writes it", () => {
  const files = ["api/a.ts", "api/a.test.ts", "scripts/b.py", "docs/scaling.md"];
  const read = (lines: number) => (): string => "x\n".repeat(lines);
  expect(findLongFiles(files, read(300))).toEqual([]);
  expect(findLongFiles(files, read(301))).toEqual(
    files.slice(0, 3).map((file) => expect.stringContaining(`${file} has 301 lines`) as string),
  );
  expect(findLongFiles(["clients/typescript/src/generated.ts"], read(301))).toEqual([]);
});
