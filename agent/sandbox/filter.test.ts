import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Loopback } from "../../shared/wire/job-types.ts";
import {
  answers,
  architectures,
  around,
  auditArchitecture,
  compiled,
  denied,
  direct,
  findFaults,
  interpret,
  noArguments,
} from "../testing/filters.ts";
import {
  allowed,
  type Argument,
  compileFilter,
  guarded,
  motherProfile,
  seccompProfile,
  type SeccompProfile,
  sockets,
  type SyscallRule,
  zygoteProfile,
} from "./filter.ts";
import { syscallNumbers } from "./syscall-numbers.ts";

const allowedNames = Object.values(allowed).flat();
const guardedNames = new Set([...guarded, ...sockets.tcp].map(({ name }) => name));
const deniedNames = Object.values(denied).flat();

test("a call that is not listed fails", () => {
  expect(seccompProfile()).toMatchObject({ defaultAction: "SCMP_ACT_ERRNO" });
});

test("32-bit calls are denied", () => {
  expect(seccompProfile().archMap).toEqual([
    { architecture: "SCMP_ARCH_X86_64", subArchitectures: [] },
    { architecture: "SCMP_ARCH_AARCH64", subArchitectures: [] },
  ]);
});

test("each call is listed once", () => {
  const names = [...allowedNames, ...guardedNames, "clone3"];
  expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  expect(names.every((name) => /^[a-z][a-z0-9_]+$/.test(name))).toBe(true);
});

test("no call is both denied and allowed", () => {
  expect(deniedNames.filter((name) => allowedNames.includes(name))).toEqual([]);
  expect(deniedNames.filter((name) => guardedNames.has(name))).toEqual([]);
});

test("a call with a condition on its arguments is allowed with those arguments only", () => {
  const rules = seccompProfile().syscalls.filter(({ names }) =>
    names.some((name) => guardedNames.has(name)),
  );
  expect(rules).toHaveLength(guarded.length + sockets.tcp.length);
  for (const rule of rules) expect(rule).toHaveProperty("args.0.op", "SCMP_CMP_MASKED_EQ");
});

test("the profile is small enough for a request", () => {
  expect(JSON.stringify(seccompProfile()).length).toBeLessThan(12_000);
});

describe("what starts jobs by forking", () => {
  const own = (profile: typeof seccompProfile, loopback: Loopback = "tcp") => {
    const code = seccompProfile(loopback).syscalls.map((rule) => JSON.stringify(rule));
    const [first, ...others] = profile().syscalls;
    return {
      allowed: first!.names.filter((name) => !allowedNames.includes(name)),
      guarded: others
        .filter((rule) => !code.includes(JSON.stringify(rule)))
        .map(
          ({ names: [name], args }) =>
            `${name} ${args!.map(({ value, valueTwo, op }) => `${op} ${value.toString(16)} ${valueTwo}`).join()}`,
        ),
    };
  };
  const forJobs = ["clone SCMP_CMP_EQ 78020011 0", "unshare SCMP_CMP_EQ 2000000 0"];

  test("a zygote may make a job's namespaces, mounts and filter besides", () => {
    expect(own(zygoteProfile)).toEqual({
      allowed: ["mount", "pivot_root", "seccomp", "umount2"],
      guarded: forJobs,
    });
  });

  test("a mother may make the namespaces of a zygote besides", () => {
    expect(own(motherProfile, "full")).toEqual({
      allowed: ["mount", "pivot_root", "seccomp", "sethostname", "umount2"],
      guarded: [
        ...forJobs,
        "unshare SCMP_CMP_EQ 20000 0",
        "unshare SCMP_CMP_EQ 7c020000 0",
        "keyctl SCMP_CMP_MASKED_EQ ffffffff 1",
      ],
    });
  });
});

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
