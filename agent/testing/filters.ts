import {
  type Argument,
  compileFilter,
  type SeccompProfile,
  type SyscallRule,
} from "../sandbox/filter.ts";
import { type Architecture, syscallNumbers } from "../sandbox/syscall-numbers.ts";

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

/** What a filter sees of a call, struct seccomp_data. */
interface Call {
  readonly number: number;
  readonly architecture: number;
  readonly args: readonly bigint[];
}

/**
 * Runs a program of classic BPF on a call, as the kernel does, and returns its answer. Source:
 * Documentation/networking/filter.rst and kernel/seccomp.c.
 */
export function interpret(program: Buffer, { number, architecture, args }: Call): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number, 0);
  data.writeUInt32LE(architecture, 4);
  args.forEach((arg, index) => data.writeBigUInt64LE(arg, 16 + 8 * index));
  let accumulator = 0;
  for (let at = 0; at < program.length; at += 8) {
    const code = program.readUInt16LE(at);
    const value = program.readUInt32LE(at + 4);
    const jumpIf = (condition: boolean): number => program.readUInt8(at + (condition ? 2 : 3)) * 8;
    switch (code) {
      case 0x20: // BPF_LD | BPF_W | BPF_ABS
        accumulator = data.readUInt32LE(value);
        break;
      case 0x54: // BPF_ALU | BPF_AND | BPF_K
        accumulator = (accumulator & value) >>> 0;
        break;
      case 0x05: // BPF_JMP | BPF_JA
        at += value * 8;
        break;
      case 0x15: // BPF_JMP | BPF_JEQ | BPF_K
        at += jumpIf(accumulator === value);
        break;
      case 0x35: // BPF_JMP | BPF_JGE | BPF_K
        at += jumpIf(accumulator >= value);
        break;
      case 0x45: // BPF_JMP | BPF_JSET | BPF_K
        at += jumpIf((accumulator & value) !== 0);
        break;
      case 0x06: // BPF_RET | BPF_K
        return value;
      default:
        throw new Error(`unknown instruction ${code.toString(16)} at ${at / 8}`);
    }
  }
  throw new Error("the program ends without an answer");
}

/** What the kernel would refuse: bpf_check_classic and seccomp_check_filter. */
export function findFaults(program: Buffer): string[] {
  const length = program.length / 8;
  const faults = length >= 1 && length <= 4096 ? [] : [`${length} instructions`];
  for (let i = 0; i < length; i++) {
    const code = program.readUInt16LE(i * 8);
    const value = program.readUInt32LE(i * 8 + 4);
    const isJump = (code & 0x07) === 0x05;
    const jumps = code === 0x05 ? [value] : [program[i * 8 + 2]!, program[i * 8 + 3]!];
    if (isJump && jumps.some((count) => i + 1 + count >= length)) faults.push(`${i}: jumps out`);
    if (code === 0x20 && (value % 4 !== 0 || value >= 64)) faults.push(`${i}: loads beyond`);
  }
  if (program.readUInt16LE((length - 1) * 8) !== 0x06) faults.push("ends without an answer");
  return faults;
}

/** Numbers of a system call on x86-64 and on arm64; null if it has none there. */
export type CallNumbers = readonly [x86: number | null, arm: number | null];

export const numbersOf = (name: string): CallNumbers => [
  syscallNumbers.x86_64.get(name) ?? null,
  syscallNumbers.aarch64.get(name) ?? null,
];

const words = (text: string): string[] => text.trim().split(/\s+/);

/** Calls that a sandbox must not make, grouped by what they would do. */
export const denied: Readonly<Record<string, readonly string[]>> = {
  "reads or changes other processes": words(`
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise process_mrelease`),
  "loads code into the kernel": words(`
    init_module finit_module delete_module create_module query_module get_kernel_syms bpf kexec_load
    kexec_file_load uselib`),
  mounts: words(`
    mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick
    mount_setattr`),
  "makes or enters namespaces": words("unshare setns"),
  "uses parts of the kernel that often had vulnerabilities and that jobs do not need": words(`
    io_uring_setup io_uring_enter io_uring_register io_setup io_submit io_getevents io_cancel
    io_destroy io_pgetevents userfaultfd perf_event_open fanotify_init fanotify_mark add_key
    request_key keyctl modify_ldt remap_file_pages memfd_secret mq_open mq_unlink mq_timedsend
    mq_timedreceive mq_notify mq_getsetattr lookup_dcookie`),
  "lends a pipe the pages of a process, which its forks share": words("vmsplice"),
  "goes around file permissions": words("open_by_handle_at name_to_handle_at"),
  "places memory on nodes of the host": words(`
    mbind get_mempolicy set_mempolicy set_mempolicy_home_node migrate_pages move_pages`),
  "belongs to the host": words(`
    reboot swapon swapoff acct quotactl quotactl_fd nfsservctl syslog vhangup iopl ioperm
    settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname sync sysfs ustat
    _sysctl`),
};
