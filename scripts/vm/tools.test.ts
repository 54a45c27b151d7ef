import { expect, test } from "vitest";
import { toolsAdvice } from "./tools.ts";

const missing = ["qemu-system-x86_64", "debootstrap"];

test.each([
  [
    "an ordinary user",
    missing,
    { root: false, apt: true },
    "needs root",
    "sudo: it installs what is missing (qemu-system-x86 debootstrap)",
  ],
  ["an ordinary user with all tools", [], { root: false, apt: true }, "needs root", "with sudo"],
  [
    "root without apt",
    missing,
    { root: true, apt: false },
    "needs qemu-system-x86_64, debootstrap",
    "Debian's packages are qemu-system-x86 debootstrap",
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
