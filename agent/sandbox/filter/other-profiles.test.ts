import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type SeccompProfile, seccompProfile, type SyscallRule } from "./profiles.ts";
import type { Argument } from "./guard.ts";
import {
  answers,
  architectures,
  compiled,
  direct,
  noArguments,
} from "../testing/evaluate-filter.ts";
import { findFaults } from "../testing/interpret.ts";
import { compileFilter } from "./compile-filter.ts";
import { syscallNumbers } from "./syscall-numbers.ts";

const profileWith = (syscalls: readonly SyscallRule[]): SeccompProfile => ({
  ...seccompProfile(),
  syscalls,
});
const named = (name: string, args: readonly Argument[]): SyscallRule => ({
  names: [name],
  action: "SCMP_ACT_ALLOW",
  args,
});
const allNames = [...syscallNumbers.x86_64.keys()];

test("a program with jumps beyond 255 instructions answers as the profile does", () => {
  const profile = profileWith(
    allNames.slice(0, 100).flatMap((name, number) =>
      [1, 2, 3].map((index) =>
        named(name, [
          { index: index - 1, value: number, valueTwo: 0, op: "SCMP_CMP_EQ" },
          { index, value: 0xff, valueTwo: index, op: "SCMP_CMP_MASKED_EQ" },
        ]),
      ),
    ),
  );
  const program = compileFilter(profile, "x86_64");
  expect(findFaults(program)).toEqual([]);
  expect(program.length / 8).toBeGreaterThan(2048);
  const [answer, expected] = [compiled(profile, "x86_64"), direct(profile, "x86_64")];
  for (let number = 0; number < 200; number++) {
    const fitting = [0n, 0n, BigInt(number), 3n, 0n, 0n];
    for (const args of [noArguments, fitting, fitting.with(3, 2n)]) {
      expect([number, answer(number, args)]).toEqual([number, expected(number, args)]);
    }
  }
});

test("random profiles are compiled to what they say", () => {
  const index = fc.nat(5);
  const bits = fc.oneof(fc.nat(15), fc.maxSafeNat());
  const argument: fc.Arbitrary<Argument> = fc.oneof(
    fc.record({
      index,
      value: bits,
      valueTwo: fc.constant(0),
      op: fc.constant("SCMP_CMP_EQ" as const),
    }),
    fc.record({ index, mask: bits, value: bits }).map(({ mask, value, ...rest }) => ({
      ...rest,
      value: mask,
      valueTwo: Number(BigInt(mask) & BigInt(value)),
      op: "SCMP_CMP_MASKED_EQ" as const,
    })),
  );
  const rule: fc.Arbitrary<SyscallRule> = fc.record({
    names: fc.subarray(allNames, { maxLength: 60 }),
    action: fc.constantFrom("SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"),
    args: fc.array(argument, { maxLength: 4 }),
  });
  const random = fc.record({
    profile: fc.array(rule, { maxLength: 6 }).map(profileWith),
    architecture: fc.constantFrom(...architectures),
    changed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  });
  fc.assert(
    fc.property(random, ({ profile, architecture, changed }) => {
      const answer = compiled(profile, architecture);
      const expected = direct(profile, architecture);
      const fitting = profile.syscalls.map(({ args = [] }) =>
        args.reduce((all, { index: at, op, value, valueTwo }) => {
          return all.with(at, BigInt(op === "SCMP_CMP_EQ" ? value : valueTwo));
        }, noArguments),
      );
      for (let number = 0; number < 470; number++) {
        for (const args of [noArguments, noArguments.map(() => changed), ...fitting]) {
          expect(answer(number, args)).toBe(expected(number, args));
        }
      }
    }),
    { numRuns: 30 },
  );
});

describe("a profile that says what cannot be meant is refused", () => {
  test("a name that no architecture has", () => {
    expect(() => compileFilter(profileWith([named("opan", [])]), "x86_64")).toThrow(
      'no system call is named "opan": correct it, or make syscall-numbers.ts from newer headers',
    );
  });

  test("but a name that only the other architecture has is left out", () => {
    const profile = profileWith([named("open", []), named("read", [])]);
    expect(compiled(profile, "x86_64")(2)).toBe(answers.allow);
    expect(compiled(profile, "aarch64")(2)).toBe(answers.eperm);
    expect(compiled(profile, "aarch64")(63)).toBe(answers.allow);
  });

  test("a value with bits outside of its mask", () => {
    const never: Argument = { index: 1, value: 3, valueTwo: 4, op: "SCMP_CMP_MASKED_EQ" };
    expect(() => compileFilter(profileWith([named("read", [never])]), "x86_64")).toThrow(
      "argument 1 never matches: 4 has bits outside of 3",
    );
  });

  test("more instructions than the kernel takes", () => {
    const args = (value: number): Argument[] =>
      [3, 4, 5].map((index) => ({ index, value, valueTwo: 0, op: "SCMP_CMP_EQ" }));
    const profile = profileWith(allNames.map((name, number) => named(name, args(number))));
    expect(() => compileFilter(profile, "x86_64")).toThrow(/the kernel's maximum is 4096$/);
  });
});
