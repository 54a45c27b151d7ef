import { expect, test } from "vitest";
import { toolsAdvice } from "./tools.ts";

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
