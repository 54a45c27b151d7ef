import type { Loopback } from "../../shared/wire/job-types.ts";
import { type Architecture, syscallNumbers } from "./syscall-numbers.ts";

/** EQ compares all 64 bits with value. MASKED_EQ has its mask in value, and compares valueTwo. */
export interface Argument {
  readonly index: number;
  readonly value: number;
  readonly valueTwo: number;
  readonly op: "SCMP_CMP_EQ" | "SCMP_CMP_MASKED_EQ";
}

/** A call that is allowed with certain arguments only. */
interface Guard {
  readonly name: string;
  /** None: with any arguments. */
  readonly args: readonly Argument[];
  /** What the call fails with; where it is missing, the call is made. 0 pretends that it was made. */
  readonly errno?: number;
}

/** An argument of type int: the kernel reads only its low 32 bits, so the filter does too. */
const intEquals = (index: number, value: number): Argument => masked(index, 0xffff_ffff, value);

function masked(index: number, mask: number, value: number): Argument {
  return { index, value: mask, valueTwo: value, op: "SCMP_CMP_MASKED_EQ" };
}

/** The numbers from `first` on, as many as a power of two: `first` is a multiple of it. */
const rangeFrom = (index: number, first: number, count: number): Argument =>
  masked(index, (0xffff_ffff & ~(count - 1)) >>> 0, first);

/** The form of Docker Engine's seccomp profiles, as far as it is used here. */
export interface SeccompProfile {
  readonly defaultAction: "SCMP_ACT_ERRNO";
  readonly archMap: readonly {
    readonly architecture: string;
    readonly subArchitectures: readonly string[];
  }[];
  readonly syscalls: readonly SyscallRule[];
}

export interface SyscallRule {
  readonly names: readonly string[];
  readonly action: "SCMP_ACT_ALLOW" | "SCMP_ACT_ERRNO";
  /** EPERM where it is missing. */
  readonly errnoRet?: number;
  /** All have to match; a call without a rule that matches gets the default action. */
  readonly args?: readonly Argument[];
}

/**
 * The system calls that a sandbox may make; all others fail with EPERM. The engine's own filter
 * allows more and differs between versions. Source: seccomp(2), and the format of Docker Engine's
 * seccomp profiles.
 */
export const seccompProfile = (loopback: Loopback = "tcp"): SeccompProfile =>
  profileOf(loopback, [], []);

/** What a zygote may do besides: give each job its namespaces, mounts and filter. */
export const zygoteProfile = (loopback: Loopback = "tcp"): SeccompProfile =>
  profileOf(loopback, forJobs, jobNamespaces);

/** What a mother may do besides: start zygotes in user namespaces of their own. */
export const motherProfile = (): SeccompProfile =>
  profileOf("full", forZygotes, [...jobNamespaces, ...zygoteNamespaces]);

function profileOf(
  loopback: Loopback,
  moreAllowed: readonly string[],
  moreGuarded: readonly Guard[],
): SeccompProfile {
  return {
    defaultAction: "SCMP_ACT_ERRNO",
    // Unlike Docker's filter, no 32-bit architecture: 32-bit calls reach rarely used kernel code
    // and have their own numbers and argument layouts. The kernel kills a process that makes one.
    archMap: ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"].map((architecture) => ({
      architecture,
      subArchitectures: [],
    })),
    syscalls: [
      { names: [...Object.values(allowed).flat(), ...moreAllowed], action: "SCMP_ACT_ALLOW" },
      ...[...guarded, ...sockets[loopback], ...moreGuarded].map(toRule),
      // A filter cannot see clone3's flags; on ENOSYS the C library uses clone to make threads.
      { names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: 38 },
    ],
  };
}

function toRule({ name, args, errno }: Guard): SyscallRule {
  if (errno === undefined) return { names: [name], action: "SCMP_ACT_ALLOW", args };
  return { names: [name], action: "SCMP_ACT_ERRNO", errnoRet: errno, args };
}

const words = (text: string): string[] => text.trim().split(/\s+/);

/** Calls that any code may make with any arguments, by what they are for. */
export const allowed: Readonly<Record<string, readonly string[]>> = {
  "files and folders, under the rights of uid 1000 and on a read-only root": words(`
    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat
    faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync
    flock fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 ioctl lchown link linkat
    lseek lstat mkdir mkdirat mknod mknodat newfstatat open openat openat2 pread64 preadv preadv2
    pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv rename renameat renameat2
    rmdir sendfile stat statfs statx symlink symlinkat sync_file_range syncfs truncate umask unlink
    unlinkat utime utimensat utimes write writev`),
  "extended attributes, which copying and packaging tools read": words(`
    fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr
    lsetxattr removexattr setxattr`),
  "memory, that of shared_memory and of just-in-time compilers too": words(`
    brk madvise map_shadow_stack mincore mlock mlock2 mlockall mprotect mremap mseal
    msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect`),
  "processes and threads, within the process limit": words(`
    arch_prctl execve execveat exit exit_group fork get_robust_list getpgid getpgrp getpid getppid
    getpriority getrlimit getrusage getsid gettid ioprio_get ioprio_set membarrier pidfd_open
    pidfd_send_signal prlimit64 restart_syscall rseq set_robust_list
    set_tid_address setpgid setpriority setrlimit setsid times vfork wait4 waitid`),
  "scheduling: multiprocessing and numerical libraries ask for their CPUs": words(`
    getcpu sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
    sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr
    sched_setparam sched_setscheduler sched_yield`),
  "locks and waiting": words(`
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex
    futex_requeue futex_wait futex_waitv futex_wake inotify_add_watch inotify_init inotify_init1
    inotify_rm_watch pause poll ppoll pselect6 select`),
  "signals to its own processes": words(`
    kill rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
    rt_sigtimedwait rt_tgsigqueueinfo sigaltstack signalfd signalfd4 tgkill tkill`),
  "reading clocks, and timers": words(`
    alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time
    timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime`),
  "pipes, and sockets once made": words(`
    accept accept4 bind connect getpeername getsockname getsockopt listen pipe pipe2 recvfrom recvmmsg
    recvmsg sendmmsg sendmsg sendto shutdown splice tee`),
  "System V memory, semaphores and queues of the container's own IPC namespace": words(`
    msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt`),
  "what a process is, and giving rights up: the supervisor becomes uid 1000 with them": words(`
    capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid
    setgroups setregid setresgid setresuid setreuid setuid`),
  "restricting oneself further": words(`
    landlock_add_rule landlock_create_ruleset landlock_restrict_self`),
  "the system at large": words("getrandom sysinfo uname"),
};

const AF_UNIX = 1;
const PR_SET_VMA = 0x5356_4d41;
const PR_SET_PTRACER = 0x5961_6d61;

/**
 * Calls that are allowed only with certain arguments: one line with the call's name has to match.
 */
export const guarded: readonly Guard[] = [
  // Threads and processes, but no CLONE_NEW…: no namespaces.
  { name: "clone", args: [masked(0, 0x7e02_0000, 0)] },
  // Sets or reads the default; others weaken address randomisation or restore old behaviour.
  { name: "personality", args: [intEquals(0, 0)] },
  { name: "personality", args: [intEquals(0, 0xffff_ffff)] },
  // All commands but F_SETLEASE, 1024, and F_NOTIFY, 1026: a lease on a file of the image makes every
  // other job that opens the file wait, for up to 45 s. Nor F_OFD_SETLK, 37: nobody can tell whose such locks are.
  // F_SETOWN, 8, and F_SETOWN_EX, 15, are refused too: the kernel keeps memory for them that it counts for nobody.
  ...[
    rangeFrom(1, 0, 8),
    intEquals(1, 9),
    rangeFrom(1, 10, 2),
    rangeFrom(1, 12, 2),
    intEquals(1, 14),
    rangeFrom(1, 16, 16),
  ].map((command) => ({ name: "fcntl", args: [command] })),
  ...[1025, 1027, 1028, 1030, 1031].map((command) => ({
    name: "fcntl",
    args: [intEquals(1, command)],
  })),
  { name: "fcntl", args: [masked(1, 0xffff_fff8, 1032)] },
  // No MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB: the pages that a host reserves count against no memory limit.
  { name: "mmap", args: [masked(3, 0x4_0000, 0)] },
  { name: "memfd_create", args: [masked(1, 0x4, 0)] },
  { name: "shmget", args: [masked(2, 0x800, 0)] },
  { name: "socketpair", args: [intEquals(0, AF_UNIX)] },
  { name: "socket", args: [intEquals(0, AF_UNIX)] },
  // All options but PR_SET_SECCOMP, 22: compiled filters are memory of the host, bounded for all processes
  // together.
  ...[
    rangeFrom(0, 0, 16),
    rangeFrom(0, 16, 4),
    rangeFrom(0, 20, 2),
    intEquals(0, 23),
    rangeFrom(0, 24, 8),
    rangeFrom(0, 32, 32),
    rangeFrom(0, 64, 64),
    intEquals(0, PR_SET_VMA),
    intEquals(0, PR_SET_PTRACER),
  ].map((option) => ({ name: "prctl", args: [option] })),
];

const forJobs = words("mount pivot_root seccomp umount2");
const forZygotes = words("mount pivot_root seccomp sethostname umount2");

const NEWNS = 0x2_0000;
const NEWCGROUP = 0x200_0000;
const NEWUTS = 0x400_0000;
const NEWIPC = 0x800_0000;
const NEWUSER = 0x1000_0000;
const NEWPID = 0x2000_0000;
const NEWNET = 0x4000_0000;

/** Exactly these namespaces, no fewer and no more. */
const unshare = (flags: number): Guard => ({
  name: "unshare",
  args: [{ index: 0, value: flags, valueTwo: 0, op: "SCMP_CMP_EQ" }],
});

const KEYCTL_JOIN_SESSION_KEYRING = 1;

const SIGCHLD = 17;

const jobNamespaces: readonly Guard[] = [
  // A fork into exactly these new namespaces.
  {
    name: "clone",
    args: [
      {
        index: 0,
        value: NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | SIGCHLD,
        valueTwo: 0,
        op: "SCMP_CMP_EQ",
      },
    ],
  },
  // Entered after the job is in its control groups, which are then its root.
  unshare(NEWCGROUP),
];

const zygoteNamespaces: readonly Guard[] = [
  // Before it gives rights up, it leaves behind the mounts that are not for it.
  unshare(NEWNS),
  unshare(NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS),
  // Zygotes and jobs cannot reach a keyring, nor make one.
  { name: "keyctl", args: [intEquals(0, KEYCTL_JOIN_SESSION_KEYRING)] },
];

const AF_NETLINK = 16;
const NETLINK_ROUTE = 0;
const internetFamilies = [2, 10];
const [STREAM, DATAGRAM, RAW] = [1, 2, 3];
const EACCES = 13;

/** The default of the type, TCP and UDP; other protocols would make the kernel load modules. */
const internetSockets = (types: readonly number[], protocols: readonly number[]): Guard[] =>
  internetFamilies.flatMap((family) =>
    types.flatMap((type) =>
      protocols.map((protocol) => ({
        name: "socket",
        args: [intEquals(0, family), masked(1, 0xf, type), intEquals(2, protocol)],
      })),
    ),
  );

const noInternetSockets = (types: readonly number[]): Guard[] =>
  internetFamilies.flatMap((family) =>
    types.map((type) => ({
      name: "socket",
      args: [intEquals(0, family), masked(1, 0xf, type)],
      errno: EACCES,
    })),
  );

const SOL_SOCKET = 1;
const [IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6] = [0, 6, 41];
const [SO_SNDBUF, SO_RCVBUF] = [7, 8];

/**
 * Options without filters (their compiled code is the host's memory, bounded for all processes together)
 * and without sizes of buffers: those of TCP are no part of a control group v1, and SO_RCVBUF goes over
 * net.ipv4.tcp_rmem. A size is taken and ignored, as the kernel does where it is over its limit.
 */
const boundedOptions: readonly Guard[] = [
  ...[IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6].map((level) => [intEquals(1, level)]),
  // SO_DEBUG to SO_BROADCAST, SO_KEEPALIVE to SO_SNDTIMEO, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW, SO_PASSPIDFD.
  ...[
    rangeFrom(2, 0, 4),
    rangeFrom(2, 4, 2),
    intEquals(2, 6),
    intEquals(2, 9),
    rangeFrom(2, 10, 2),
    rangeFrom(2, 12, 4),
    rangeFrom(2, 16, 4),
    rangeFrom(2, 20, 2),
    rangeFrom(2, 66, 2),
    intEquals(2, 76),
  ].map((option) => [intEquals(1, SOL_SOCKET), option]),
].map((args) => ({ name: "setsockopt", args }));

const ignoredSizes: readonly Guard[] = [SO_SNDBUF, SO_RCVBUF].map((option) => ({
  name: "setsockopt",
  args: [intEquals(1, SOL_SOCKET), intEquals(2, option)],
  errno: 0,
}));

/** What code may do with sockets other than Unix ones, by the loopback of its job type. */
export const sockets: Readonly<Record<Loopback, readonly Guard[]>> = {
  none: [...noInternetSockets([STREAM, DATAGRAM, RAW]), ...boundedOptions, ...ignoredSizes],
  tcp: [
    ...internetSockets([STREAM], [0, 6]),
    ...noInternetSockets([DATAGRAM, RAW]),
    ...boundedOptions,
    ...ignoredSizes,
  ],
  full: [
    ...internetSockets([STREAM, DATAGRAM], [0, 6, 17]),
    // getifaddrs uses it to read the interfaces.
    { name: "socket", args: [intEquals(0, AF_NETLINK), intEquals(2, NETLINK_ROUTE)] },
    { name: "setsockopt", args: [] },
  ],
};

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
