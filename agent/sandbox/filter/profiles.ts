import type { Loopback } from "../../../shared/wire/job-type.ts";
import { type Argument, from, type Guard, int, masked } from "./guard.ts";
import { sockets } from "./socket-rules.ts";

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
  { name: "personality", args: [int(0, 0)] },
  { name: "personality", args: [int(0, 0xffff_ffff)] },
  // All commands but F_SETLEASE, 1024, and F_NOTIFY, 1026: a lease on a file of the image makes every
  // other job that opens the file wait, for up to 45 s. Nor F_OFD_SETLK, 37: nobody can tell whose such locks are.
  // F_SETOWN, 8, and F_SETOWN_EX, 15, are refused too: the kernel keeps memory for them that it counts for nobody.
  ...[from(1, 0, 8), int(1, 9), from(1, 10, 2), from(1, 12, 2), int(1, 14), from(1, 16, 16)].map(
    (command) => ({ name: "fcntl", args: [command] }),
  ),
  ...[1025, 1027, 1028, 1030, 1031].map((command) => ({ name: "fcntl", args: [int(1, command)] })),
  { name: "fcntl", args: [masked(1, 0xffff_fff8, 1032)] },
  // No MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB: the pages that a host reserves count against no memory limit.
  { name: "mmap", args: [masked(3, 0x4_0000, 0)] },
  { name: "memfd_create", args: [masked(1, 0x4, 0)] },
  { name: "shmget", args: [masked(2, 0x800, 0)] },
  { name: "socketpair", args: [int(0, AF_UNIX)] },
  { name: "socket", args: [int(0, AF_UNIX)] },
  // All options but PR_SET_SECCOMP, 22: compiled filters are memory of the host, bounded for all processes
  // together.
  ...[
    from(0, 0, 16),
    from(0, 16, 4),
    from(0, 20, 2),
    int(0, 23),
    from(0, 24, 8),
    from(0, 32, 32),
    from(0, 64, 64),
    int(0, PR_SET_VMA),
    int(0, PR_SET_PTRACER),
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
  { name: "keyctl", args: [int(0, KEYCTL_JOIN_SESSION_KEYRING)] },
];
