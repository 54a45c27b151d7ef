import { compileFilter } from "../filter/compile-filter.ts";
import { type Architecture, syscallNumbers } from "../filter/syscall-numbers.ts";
import type { SeccompProfile, SyscallRule } from "../filter/profiles.ts";
import type { Argument } from "../filter/guard.ts";
import { interpret } from "./interpret.ts";

export const auditArchitecture = { x86_64: 0xc000_003e, aarch64: 0xc000_00b7 };
export const architectures = Object.keys(auditArchitecture) as Architecture[];

/** Answers of a filter, as the kernel writes them. */
export const answers = {
  killProcess: 0x8000_0000,
  allow: 0x7fff_0000,
  eperm: 0x5_0001,
  enosys: 0x5_0026,
};

export const noArguments: readonly bigint[] = [0n, 0n, 0n, 0n, 0n, 0n];

/** Answers of a compiled filter. */
export function compiled(profile: SeccompProfile, architecture: Architecture) {
  const program = compileFilter(profile, architecture);
  return (number: number, args = noArguments): number =>
    interpret(program, { number, architecture: auditArchitecture[architecture], args });
}

/** Answers of the profile itself, by the names of calls. */
export function direct(profile: SeccompProfile, architecture: Architecture) {
  const numbers = syscallNumbers[architecture];
  const numbered = profile.syscalls.flatMap((rule) =>
    rule.names.map((name) => ({ number: numbers.get(name), rule })),
  );
  const newest = Math.max(-1, ...numbered.map(({ number }) => number ?? -1));
  return (number: number, args = noArguments): number => {
    if (number > newest) return answers.enosys;
    const match = numbered.find(
      (entry) => entry.number === number && (entry.rule.args ?? []).every(matches(args)),
    );
    if (match === undefined) return answers.eperm;
    return match.rule.action === "SCMP_ACT_ALLOW"
      ? answers.allow
      : 0x5_0000 + (match.rule.errnoRet ?? 1);
  };
}

const matches =
  (args: readonly bigint[]) =>
  ({ index, op, value, valueTwo }: Argument): boolean =>
    op === "SCMP_CMP_EQ"
      ? args[index] === BigInt(value)
      : (args[index]! & BigInt(value)) === BigInt(valueTwo);

/** Arguments around those that the rules name: each of their combinations, and each of the bits changed. */
export function* around(
  rules: readonly SyscallRule[],
  bits = [...Array(64).keys()],
): Generator<bigint[]> {
  const wanted = (index: number): bigint[] => {
    const compared = rules.flatMap(({ args = [] }) => args).filter((arg) => arg.index === index);
    const values = compared.map(({ op, value, valueTwo }) =>
      BigInt(op === "SCMP_CMP_EQ" ? value : valueTwo),
    );
    return [...new Set([0n, 2n ** 64n - 1n, ...values])];
  };
  for (const first of wanted(0)) {
    for (const second of wanted(1)) {
      for (const third of wanted(2)) {
        const args = [first, second, third, 0n, 0n, 0n];
        yield args;
        for (const bit of bits) {
          for (const index of [0, 1, 2]) yield args.with(index, args[index]! ^ (1n << BigInt(bit)));
        }
      }
    }
  }
}
