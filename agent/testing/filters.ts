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

/** Numbers of a system call on x86-64 and on arm64; null if it has none there. Source: Linux's unistd.h. */
export type CallNumbers = readonly [x86: number | null, arm: number | null];

/** Calls that a sandbox must not make, grouped by what they would do. */
export const denied: Readonly<Record<string, Readonly<Record<string, CallNumbers>>>> = {
  "reads or changes other processes": {
    ptrace: [101, 117],
    process_vm_readv: [310, 270],
    process_vm_writev: [311, 271],
    kcmp: [312, 272],
    pidfd_getfd: [438, 438],
    process_madvise: [440, 440],
    process_mrelease: [448, 448],
  },
  "loads code into the kernel": {
    init_module: [175, 105],
    finit_module: [313, 273],
    delete_module: [176, 106],
    create_module: [174, null],
    query_module: [178, null],
    get_kernel_syms: [177, null],
    bpf: [321, 280],
    kexec_load: [246, 104],
    kexec_file_load: [320, 294],
    uselib: [134, null],
  },
  mounts: {
    mount: [165, 40],
    umount2: [166, 39],
    pivot_root: [155, 41],
    chroot: [161, 51],
    open_tree: [428, 428],
    move_mount: [429, 429],
    fsopen: [430, 430],
    fsconfig: [431, 431],
    fsmount: [432, 432],
    fspick: [433, 433],
    mount_setattr: [442, 442],
  },
  "makes or enters namespaces": { unshare: [272, 97], setns: [308, 268] },
  "uses parts of the kernel that often had vulnerabilities and that jobs do not need": {
    io_uring_setup: [425, 425],
    io_uring_enter: [426, 426],
    io_uring_register: [427, 427],
    io_setup: [206, 0],
    io_submit: [209, 2],
    io_getevents: [208, 4],
    io_cancel: [210, 3],
    io_destroy: [207, 1],
    io_pgetevents: [333, 292],
    userfaultfd: [323, 282],
    perf_event_open: [298, 241],
    fanotify_init: [300, 262],
    fanotify_mark: [301, 263],
    add_key: [248, 217],
    request_key: [249, 218],
    keyctl: [250, 219],
    modify_ldt: [154, null],
    remap_file_pages: [216, 234],
    memfd_secret: [447, 447],
    mq_open: [240, 180],
    mq_unlink: [241, 181],
    mq_timedsend: [242, 182],
    mq_timedreceive: [243, 183],
    mq_notify: [244, 184],
    mq_getsetattr: [245, 185],
    lookup_dcookie: [212, 18],
  },
  "lends a pipe the pages of a process, which its forks share": { vmsplice: [278, 75] },
  "goes around file permissions": {
    open_by_handle_at: [304, null],
    name_to_handle_at: [303, null],
  },
  "places memory on nodes of the host": {
    mbind: [237, 235],
    get_mempolicy: [239, 236],
    set_mempolicy: [238, 237],
    set_mempolicy_home_node: [450, 450],
    migrate_pages: [256, 238],
    move_pages: [279, 239],
  },
  "belongs to the host": {
    reboot: [169, 142],
    swapon: [167, 224],
    swapoff: [168, 225],
    acct: [163, 89],
    quotactl: [179, 60],
    quotactl_fd: [443, 443],
    nfsservctl: [180, 42],
    syslog: [103, 116],
    vhangup: [153, 58],
    iopl: [172, null],
    ioperm: [173, null],
    settimeofday: [164, 170],
    clock_settime: [227, 112],
    adjtimex: [159, 171],
    clock_adjtime: [305, 266],
    sethostname: [170, 161],
    setdomainname: [171, 162],
    sync: [162, 81],
    sysfs: [139, null],
    ustat: [136, null],
    _sysctl: [156, null],
  },
};
