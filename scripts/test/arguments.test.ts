import { expect, test } from "vitest";
import { readTestArguments } from "./arguments.ts";

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
  const file = "agent/sandbox/lifetime.engine.test.ts";
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
