import { expect, test } from "vitest";
import { allowed, guarded, seccompProfile } from "./seccomp.ts";
import { denied } from "./testing/denied-calls.ts";

const allowedNames = Object.values(allowed).flat();
const guardedNames = new Set(guarded.map(({ name }) => name));
const deniedNames = Object.values(denied).flatMap((calls) => Object.keys(calls));

test("whatever is not listed fails", () => {
  expect(seccompProfile()).toMatchObject({ defaultAction: "SCMP_ACT_ERRNO" });
});

test("no 32-bit calls", () => {
  expect(seccompProfile().archMap).toEqual([
    { architecture: "SCMP_ARCH_X86_64", subArchitectures: [] },
    { architecture: "SCMP_ARCH_AARCH64", subArchitectures: [] },
  ]);
});

test("each name stands in one place", () => {
  const names = [...allowedNames, ...guardedNames, "clone3"];
  expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  expect(names.every((name) => /^[a-z][a-z0-9_]+$/.test(name))).toBe(true);
});

test("no denied call is allowed", () => {
  expect(deniedNames.filter((name) => allowedNames.includes(name))).toEqual([]);
  expect(deniedNames.filter((name) => guardedNames.has(name))).toEqual([]);
});

test("a call whose arguments matter is allowed for none but those arguments", () => {
  const rules = seccompProfile().syscalls.filter(({ names }) =>
    names.some((name) => guardedNames.has(name)),
  );
  expect(rules).toHaveLength(guarded.length);
  for (const rule of rules) expect(rule).toHaveProperty("args.0.op", "SCMP_CMP_MASKED_EQ");
});

test("the profile is small enough for a request", () => {
  expect(JSON.stringify(seccompProfile()).length).toBeLessThan(12_000);
});
