import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { tiersOf } from "../../test/tiers.ts";
import { isNewEnough, toolsAdvice } from "./machine.ts";
import { runs } from "./machine.ts";

test.each(runs)("the files of the run $name exist, are of one tier, and have its tests", (run) => {
  const sources = run.files.map((file) => readFileSync(file, "utf8")).join();
  for (const title of run.rows?.source.split("|") ?? []) expect(sources).toContain(title);
  expect(new Set(run.files.map((file) => tiersOf(file)[0])).size).toBe(1);
});

const missing = ["mke2fs", "debootstrap"];

test.each([
  [
    "an ordinary user",
    missing,
    { root: false, apt: true },
    "needs root",
    "sudo: it installs what is missing (e2fsprogs debootstrap)",
  ],
  ["an ordinary user with all tools", [], { root: false, apt: true }, "needs root", "with sudo"],
  [
    "root without apt",
    missing,
    { root: true, apt: false },
    "needs mke2fs, debootstrap",
    "Debian's packages are e2fsprogs debootstrap",
  ],
])("%s is told in two lines what to do", (_who, names, machine, problem, remedy) => {
  const lines = toolsAdvice(names, machine)!.split("\n");
  expect(lines).toEqual([
    expect.stringContaining(problem) as string,
    expect.stringContaining(remedy) as string,
  ]);
});

test("root with apt needs no advice, nor does root with all tools", () => {
  expect(toolsAdvice(missing, { root: true, apt: true })).toBeUndefined();
  expect(toolsAdvice([], { root: true, apt: false })).toBeUndefined();
});

test.each([
  ["QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", false],
  ["QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)", true],
  ["", false],
])("%s: %s", (version, yes) => {
  expect(isNewEnough(version)).toBe(yes);
});
