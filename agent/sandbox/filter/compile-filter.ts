import type { SeccompProfile, SyscallRule } from "./profiles.ts";
import type { Argument } from "./guard.ts";
import { type Architecture, syscallNumbers } from "./syscall-numbers.ts";

/** One instruction of classic BPF, struct sock_filter. */
type Instruction = readonly [code: number, jumpTrue: number, jumpFalse: number, value: number];

// Source: linux/filter.h and linux/bpf_common.h.
const load = (offset: number): Instruction => [0x20, 0, 0, offset];
const and = (mask: number): Instruction => [0x54, 0, 0, mask];
const jump = (count: number): Instruction => [0x05, 0, 0, count];
const ifEqual = (value: number, yes: number, no: number): Instruction => [0x15, yes, no, value];
const ifAtLeast = (value: number, yes: number, no: number): Instruction => [0x35, yes, no, value];
const ifBits = (mask: number, yes: number, no: number): Instruction => [0x45, yes, no, mask];
const answer = (value: number): Instruction => [0x06, 0, 0, value];

const MAX_JUMP = 255;
const MAX_INSTRUCTIONS = 4096;

// Offsets in struct seccomp_data; the machine is little endian.
const NUMBER = 0;
const ARCHITECTURE = 4;
const argumentLow = (index: number): number => 16 + 8 * index;

// Source: linux/seccomp.h and linux/audit.h.
const KILL_PROCESS = 0x8000_0000;
const ALLOW = 0x7fff_0000;
const errno = (number: number): number => 0x5_0000 + number;
const EPERM = 1;
const ENOSYS = 38;
const auditArchitecture = { x86_64: 0xc000_003e, aarch64: 0xc000_00b7 };

/** Calls of the x32 ABI have this bit, under the architecture x86_64. */
const X32_BIT = 0x4000_0000;
const NO_CALL = 0xffff_ffff;

/** The numbers from `first` to the next range's have one answer: that of `program`. */
interface Range {
  readonly first: number;
  readonly program: readonly Instruction[];
}

/**
 * Compiles a profile to the program that seccomp(2) takes, an array of struct sock_filter. It
 * answers as the engine's filter does: as libseccomp compiles the profile, with what runc puts
 * before it: calls that are newer than the profile's newest fail with ENOSYS, because C libraries
 * then take an older call.
 */
export function compileFilter(profile: SeccompProfile, architecture: Architecture): Buffer {
  const program = [
    load(ARCHITECTURE),
    ifEqual(auditArchitecture[architecture], 1, 0),
    answer(KILL_PROCESS),
    load(NUMBER),
    // A tracer may set the number of no call, which is not one of x32.
    ...(architecture === "x86_64"
      ? [ifBits(X32_BIT, 0, 3), ifEqual(NO_CALL, 1, 0), answer(KILL_PROCESS), answer(errno(EPERM))]
      : []),
    ...search(rangesOf(rulesByNumber(profile, architecture))),
  ];
  if (program.length > MAX_INSTRUCTIONS) {
    throw new Error(`the filter has ${program.length} instructions, the kernel's maximum is 4096`);
  }
  return encode(program);
}

function rulesByNumber(profile: SeccompProfile, architecture: Architecture) {
  const rules = new Map<number, SyscallRule[]>();
  for (const rule of profile.syscalls) {
    for (const name of rule.names) {
      const number = syscallNumbers[architecture].get(name);
      if (number !== undefined) rules.set(number, [...(rules.get(number) ?? []), rule]);
      else if (!Object.values(syscallNumbers).some((numbers) => numbers.has(name))) {
        throw new Error(
          `no system call is named "${name}": correct it, or make syscall-numbers.ts from newer headers`,
        );
      }
    }
  }
  return rules;
}

/** Ranges over all numbers; neighbours have different answers. */
function rangesOf(rules: ReadonlyMap<number, readonly SyscallRule[]>): Range[] {
  const ranges: Range[] = [];
  const add = (first: number, program: readonly Instruction[]): void => {
    if (String(ranges.at(-1)?.program) !== String(program)) ranges.push({ first, program });
  };
  const end = Math.max(-1, ...rules.keys()) + 1;
  for (let number = 0; number < end; number++) add(number, decide(rules.get(number) ?? []));
  add(end, [answer(errno(ENOSYS))]);
  return ranges;
}

/** Binary search for the range of the number. */
function search(ranges: readonly Range[]): readonly Instruction[] {
  if (ranges.length === 1) return ranges[0]!.program;
  const middle = ranges.length >> 1;
  const { first } = ranges[middle]!;
  const below = search(ranges.slice(0, middle));
  const above = search(ranges.slice(middle));
  const choice =
    below.length <= MAX_JUMP
      ? [ifAtLeast(first, below.length, 0)]
      : [ifAtLeast(first, 0, 1), jump(below.length)];
  return [...choice, ...below, ...above];
}

/** The answer of the first rule that matches, else the default. */
function decide(rules: readonly SyscallRule[]): Instruction[] {
  const always = rules.findIndex(({ args = [] }) => args.length === 0);
  if (always !== -1) return rules.slice(0, always + 1).flatMap(matchRule);
  return [...rules.flatMap(matchRule), answer(errno(EPERM))];
}

/** The rule's answer where all its arguments match; goes on behind it where one does not. */
function matchRule({ action, errnoRet = EPERM, args = [] }: SyscallRule): Instruction[] {
  const matched = [answer(action === "SCMP_ACT_ALLOW" ? ALLOW : errno(errnoRet))];
  return args
    .flatMap(comparedHalves)
    .reduceRight<Instruction[]>(
      (rest, { offset, mask, value }) => [
        load(offset),
        ...(mask === 0xffff_ffff ? [] : [and(mask)]),
        ifEqual(value, 0, rest.length),
        ...rest,
      ],
      matched,
    );
}

/** An argument has 64 bits, a comparison 32: those halves of it of which the mask has bits. */
function comparedHalves({ index, op, value, valueTwo }: Argument) {
  const [mask, wanted] =
    op === "SCMP_CMP_EQ" ? [2n ** 64n - 1n, BigInt(value)] : [BigInt(value), BigInt(valueTwo)];
  if ((wanted & mask) !== wanted) {
    throw new Error(`argument ${index} never matches: ${wanted} has bits outside of ${mask}`);
  }
  return [0n, 32n]
    .map((shift) => ({
      offset: argumentLow(index) + Number(shift) / 8,
      mask: Number((mask >> shift) & 0xffff_ffffn),
      value: Number((wanted >> shift) & 0xffff_ffffn),
    }))
    .filter(({ mask }) => mask !== 0);
}

function encode(program: readonly Instruction[]): Buffer {
  const bytes = Buffer.alloc(program.length * 8);
  program.forEach(([code, jumpTrue, jumpFalse, value], i) => {
    bytes.writeUInt16LE(code, i * 8);
    bytes.writeUInt8(jumpTrue, i * 8 + 2);
    bytes.writeUInt8(jumpFalse, i * 8 + 3);
    bytes.writeUInt32LE(value, i * 8 + 4);
  });
  return bytes;
}
