import { describe, expect, test } from "vitest";
import { motherProfile, seccompProfile, zygoteProfile } from "./profiles.ts";
import { denied } from "../testing/denied-calls.ts";
import {
  answers,
  architectures,
  around,
  auditArchitecture,
  compiled,
  direct,
  noArguments,
} from "../testing/evaluate-filter.ts";
import { findFaults, interpret } from "../testing/interpret.ts";
import { compileFilter } from "./compile-filter.ts";
import { syscallNumbers } from "./syscall-numbers.ts";

const profiles = { code: seccompProfile(), zygote: zygoteProfile(), mother: motherProfile() };
const rows = Object.entries(profiles).flatMap(([name, profile]) =>
  architectures.map((architecture) => ({ name, profile, architecture })),
);

describe.each(rows)("the filter of the $name on $architecture", ({ profile, architecture }) => {
  const answer = compiled(profile, architecture);
  const expected = direct(profile, architecture);

  test("answers as the profile does, whatever the number", () => {
    const highest = [1000, 0x3fff_ffff, 0x8000_0000];
    for (const number of [...Array(601).keys(), ...highest]) {
      expect([number, answer(number)]).toEqual([number, expected(number)]);
    }
  });

  test("answers as the profile does, whatever the arguments of a guarded call", () => {
    const guarded = profile.syscalls.filter(({ args }) => args);
    expect(guarded.length).toBeGreaterThan(10);
    for (const name of new Set(guarded.flatMap(({ names }) => names))) {
      const number = syscallNumbers[architecture].get(name)!;
      const calls = [...around(guarded.filter(({ names }) => names.includes(name)))];
      const wrong = calls.filter((args) => answer(number, args) !== expected(number, args));
      expect([name, wrong]).toEqual([name, []]);
    }
  });

  test("kills a process that makes calls of another architecture", () => {
    const program = compileFilter(profile, architecture);
    const [i386, arm] = [0x4000_0003, 0x4000_0028];
    const others = [i386, arm, 0, ...Object.values(auditArchitecture)].filter(
      (other) => other !== auditArchitecture[architecture],
    );
    for (const other of others) {
      const call = { number: 0, architecture: other, args: noArguments };
      expect(interpret(program, call)).toBe(answers.killProcess);
    }
  });

  test("is a program that the kernel takes", () => {
    expect(findFaults(compileFilter(profile, architecture))).toEqual([]);
  });
});

describe("the calls of x32", () => {
  test.each(Object.entries(profiles))("kill a process with the filter of the %s", (_, profile) => {
    const answer = compiled(profile, "x86_64");
    for (const number of [0x4000_0000, 0x4000_0027, 0x7fff_ffff, 0xc000_0000, 0xffff_fffe]) {
      expect([number, answer(number)]).toEqual([number, answers.killProcess]);
    }
  });

  test("are unknown to aarch64", () => {
    expect(compiled(seccompProfile(), "aarch64")(0x4000_0027)).toBe(answers.enosys);
  });

  test("do not include the number of no call, which a tracer may set", () => {
    expect(compiled(seccompProfile(), "x86_64")(0xffff_ffff)).toBe(answers.eperm);
  });
});

test("numbers are those of the table of denied calls", () => {
  const calls = Object.values(denied).flatMap((group) => Object.entries(group));
  const numbers = calls.flatMap(([name, [x86, arm]]) => [
    [name, "x86_64", x86] as const,
    [name, "aarch64", arm] as const,
  ]);
  const differing = numbers.filter(([name, architecture, number]) => {
    const known = syscallNumbers[architecture].get(name);
    return number !== null && known !== undefined && known !== number;
  });
  expect(differing).toEqual([]);
});
