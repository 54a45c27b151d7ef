import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { ensureScienceImage } from "../../../scripts/setup/derived-images.ts";
import { backend, sandboxRuntime as runtime } from "../../testing/backend.ts";
import { testEngine } from "../../testing/engine.ts";
import { type CallNumbers, denied, numbersOf } from "../../testing/filters.ts";
import { hostileCases } from "../../testing/hostile.ts";
import { rawEngine } from "../../testing/raw-engine.ts";
import { runCode } from "../../testing/run-code.ts";
import type { SandboxSpec } from "../sandbox.ts";

describe("privileges", () => {
  const probe = readFileSync(
    new URL("../../testing/programs/seccomp-probe.py", import.meta.url),
    "utf8",
  );
  const zeros = "\0".repeat(128);

  /** A call with arguments that would do harm, and what gVisor's own kernel answers where not EPERM. */
  const calls: Record<string, [call: string, args: (number | string)[], gvisor?: string]> = {
    // Rings of gVisor's own kernel, which the host's never sees.
    "io_uring: a ring": ["io_uring_setup", [8, zeros], "allowed"],
    "bpf: a map": ["bpf", [0, zeros, 72]],
    "bpf: a program": ["bpf", [5, zeros, 72]],
    userfaultfd: ["userfaultfd", [1], "ENOSYS"],
    "keyctl: the session's keyring": ["keyctl", [0, -3, 1], "EACCES"],
    add_key: ["add_key", ["user", "x", "y", 1, -3], "EACCES"],
    "ptrace of the supervisor": ["ptrace", [16, 1, 0, 0]],
    "ptrace of itself by its parent": ["ptrace", [0, 0, 0, 0], "allowed"],
    "process_vm_readv of the supervisor": ["process_vm_readv", [1, 0, 0, 0, 0, 0], "ENOSYS"],
    "process_vm_writev of the supervisor": ["process_vm_writev", [1, 0, 0, 0, 0, 0], "ENOSYS"],
    "unshare: users": ["unshare", [0x1000_0000], "allowed"],
    "unshare: mounts": ["unshare", [0x2_0000], "allowed"],
    "unshare: the network": ["unshare", [0x4000_0000]],
    "unshare: processes": ["unshare", [0x2000_0000]],
    setns: ["setns", [0, 0], "ENOTSUP"],
    "mount of a new file system": ["mount", ["none", "/tmp", "tmpfs", 0, 0]],
    "mount of the root elsewhere": ["mount", ["/", "/tmp", 0, 4096, 0]],
    "mount of the root for writing": ["mount", ["none", "/", 0, 32, 0]],
    umount: ["umount2", ["/output", 2]],
    pivot_root: ["pivot_root", ["/tmp", "/tmp"]],
    chroot: ["chroot", ["/tmp"]],
    init_module: ["init_module", ["x", 1, ""]],
    finit_module: ["finit_module", [0, "", 0]],
    delete_module: ["delete_module", ["x", 0]],
    kexec_load: ["kexec_load", [0, 0, 0, 0]],
    kexec_file_load: ["kexec_file_load", [0, 0, 0, "", 0]],
    perf_event_open: ["perf_event_open", [zeros, 0, -1, -1, 0], "ENODEV"],
    open_by_handle_at: ["open_by_handle_at", [-100, zeros, 0], "ENOTSUP"],
    reboot: ["reboot", [0xfee1_dead, 672_274_793, 0x123_4567, 0]],
    swapon: ["swapon", ["/tmp/x", 0]],
    sethostname: ["sethostname", ["x", 1]],
    clock_settime: ["clock_settime", [0, zeros]],
  };

  const sockets = `
import json, socket
AF = {"AF_ALG": 38, "AF_VSOCK": 40, "AF_PACKET": 17, "AF_KEY": 15, "AF_TIPC": 30, "AF_CAN": 29, "AF_BLUETOOTH": 31, "AF_RDS": 21, "AF_XDP": 44}
wanted = {name: (number, kind) for name, number in AF.items() for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)}
for family in ("AF_INET", "AF_INET6"):
    for protocol in (1, 6, 58, 255): wanted["%s raw %d" % (family, protocol)] = (getattr(socket, family), socket.SOCK_RAW, protocol)
opened = []
for name, arguments in wanted.items():
    try: socket.socket(*arguments); opened.append(name)
    except OSError: pass
print(opened)`;

  hostileCases(({ run, isGvisor }) => {
    test("hostile 23: AF_ALG, AF_VSOCK, AF_PACKET, raw sockets and similar ones", async () => {
      expect(await run(sockets)).toMatchObject({ end: "succeeded - 0", out: "[]\n", err: "" });
    });

    test("hostile 24: io_uring, bpf, userfaultfd, keyctl, ptrace, unshare, mount, modules, kexec", async () => {
      const wanted = Object.fromEntries(
        Object.entries(calls).map(([what, [call, args]]) => [what, [numbersOf(call), args]]),
      );
      const job = { inputJson: JSON.stringify({ calls: wanted }) };
      const { out, err } = await run(probe, { job });
      expect(err).toBe("");
      // gVisor answers with a kernel of its own, and what it allows ends there.
      const expected = Object.entries(calls).map(([what, [, , gvisor]]) => [
        what,
        isGvisor ? (gvisor ?? "EPERM") : "EPERM",
      ]);
      expect(JSON.parse(out)).toEqual(Object.fromEntries(expected));
    });

    test("hostile 24: calls that gVisor allows reach neither the supervisor nor its files", async () => {
      const { end, out, files } = await run(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for flags in (0x10000000, 0x20000): libc.unshare(flags)
try: open("/proc/self/uid_map", "w").write("0 1000 1")
except OSError: pass
gained = [libc.ptrace(16, 1, 0, 0) == 0]
for act in (lambda: os.kill(1, 9), lambda: open("/proc/1/mem", "rb"), lambda: open("/code/main.py", "w"), lambda: open("/input/data.json", "w"), lambda: open("/usr/x", "w")):
    try: act(); gained.append(True)
    except OSError: gained.append(False)
print(any(gained), flush=True)
open("/output/kept", "w").write("x")
os._exit(4)`);
      expect({ end, out, files }).toEqual({
        end: "failed runtime_error 4",
        out: "False\n",
        files: { kept: "x" },
      });
    });

    test("hostile 25: writes to /proc and /sys", async () => {
      const { out } = await run(`
import os
names = ["/proc/sysrq-trigger", "/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/1/oom_score_adj", "/proc/1/mem", "/dev/mem", "/dev/kmsg"]
for top in ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/sys"):
    for folder, _, files in os.walk(top): names += [os.path.join(folder, name) for name in files]
for folder in ("/proc/sys/kernel", "/sys", "/sys/fs/cgroup", "/sys/kernel"): names.append(folder + "/new")
opened = []
for name in names:
    for how in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT):
        try: file = os.open(name, how)
        except OSError: continue
        # A masked file is the null device.
        if os.fstat(file).st_rdev != os.makedev(1, 3): opened.append(name)
        os.close(file)
print(len(names) > 20, sorted(set(opened)))`);
      expect(out).toBe("True []\n");
    });

    describe("hostile 29: rights", () => {
      test("the code has no rights and cannot get any", async () => {
        const { out } = await run(`
import os
print(os.getresuid(), os.getresgid(), os.getgroups())
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"): print(name, status.get(name, "-").strip())
for act in (lambda: os.setuid(0), lambda: os.setresuid(-1, 0, -1), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.chroot("/tmp")):
    try: act(); print("done")
    except OSError as e: print(e.strerror)`);
        const none = "0000000000000000";
        // gVisor shows neither an ambient set nor NoNewPrivs, and filters its own calls to the host.
        const [ambient, noNewPrivs, seccomp] = isGvisor ? ["-", "-", "0"] : [none, "1", "2"];
        expect(out).toBe(`(1000, 1000, 1000) (1000, 1000, 1000) []
CapInh ${none}
CapPrm ${none}
CapEff ${none}
CapBnd ${none}
CapAmb ${ambient}
NoNewPrivs ${noNewPrivs}
Seccomp ${seccomp}
${"Operation not permitted\n".repeat(5)}`);
      });

      test("capset gives none back, neither one by one nor all at once", async () => {
        const { out } = await run(`
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
for low, high in [(1 << bit, 0) for bit in range(32)] + [(0, 1 << bit) for bit in range(32)] + [(2**32 - 1, 2**32 - 1)]:
    for data in ((low, low, 0, high, high, 0), (0, low, 0, 0, high, 0), (0, 0, low, 0, 0, high)):
        libc.capset(header, (ctypes.c_uint32 * 6)(*data))
for bit in range(64): libc.prctl(47, 2, bit, 0, 0)
print(libc.prctl(38, 0, 0, 0, 0), libc.prctl(8, 1, 0, 0, 0))
print({line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")})`);
        // The bit that keeps capabilities over a change of user may be set: there are none to keep.
        expect(out).toBe("-1 0\n{'0000000000000000'}\n");
      });

      test("setuid and setgid programs run without the rights of their owners", async () => {
        const { out, err } = await run(`
import os, stat, subprocess, time
found = set()
for top in ("/bin", "/sbin", "/usr"):
    for folder, _, names in os.walk(top):
        for path in (os.path.join(folder, name) for name in names):
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and mode & 0o6000: found.add(path)
ids = set()
for path in sorted(found):
    process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(50):
        lines = open("/proc/%d/status" % process.pid).read().splitlines()
        ids |= {line for line in lines if line.startswith(("Uid", "Gid", "CapEff", "CapPrm"))}
        if process.poll() is not None: break
    process.kill(); process.wait()
print(any(path.endswith("/su") for path in found), sorted(ids))`);
        expect(err).toBe("");
        const ids = "\\t1000".repeat(4);
        expect(out).toBe(
          `True ['CapEff:\\t0000000000000000', 'CapPrm:\\t0000000000000000', 'Gid:${ids}', 'Uid:${ids}']\n`,
        );
      });

      test("a user namespace is denied or gives no power over the supervisor", async () => {
        const { out } = await run(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = libc.unshare(0x10000000)
try:
    open("/proc/self/uid_map", "w").write("0 1000 1")
    os.setuid(0)
except OSError: pass
print(made)
for act in (lambda: os.kill(1, 9), lambda: os.kill(1, 15), lambda: open("/proc/1/mem", "rb").read(1), lambda: open("/code/main.py", "w"), lambda: os.chown("/code/main.py", 1000, 1000)):
    try: act(); print("done")
    except OSError: print("no")`);
        // gVisor makes the namespace inside its own kernel.
        expect(out).toBe(`${isGvisor ? 0 : -1}\n${"no\n".repeat(5)}`);
      });
    });
  });
});

describe("seccomp probe", async () => {
  type Call = readonly [numbers: CallNumbers, args: readonly (number | string)[]];

  const place = await testEngine();

  const program = (name: string): string =>
    readFileSync(new URL(`../../testing/programs/${name}.py`, import.meta.url), "utf8");

  /** What each call comes to in a container: an errno's name, "allowed" or "killed by" a signal. */
  async function probe(calls: Record<string, Call>, spec: Partial<SandboxSpec> = {}) {
    const settings = { spec, job: { inputJson: JSON.stringify({ calls }) } };
    const { out, err, end } = await runCode(place, program("seccomp-probe"), settings);
    expect({ err, end }).toEqual({ err: "", end: "succeeded - 0" });
    return JSON.parse(out) as Record<string, string>;
  }

  const socket = numbersOf("socket");
  const socketpair = numbersOf("socketpair");
  const noDescriptor = 1000;
  const families = {
    AF_UNIX: 1,
    AF_INET: 2,
    AF_NETLINK: 16,
    AF_PACKET: 17,
    AF_RDS: 21,
    AF_ALG: 38,
    AF_VSOCK: 40,
  };
  const [stream, datagram, raw, seqpacket] = [1, 2, 3, 5];
  const setsockopt = numbersOf("setsockopt");
  const prctl = numbersOf("prctl");
  const mmap = numbersOf("mmap");
  const memfd = numbersOf("memfd_create");
  const shmget = numbersOf("shmget");
  const clone = numbersOf("clone");
  const clone3 = numbersOf("clone3");
  const seccomp = numbersOf("seccomp");
  const high = 2 ** 32;
  const nothing = [0, 0, 0, 0, 0, 0];
  const sigsys = 31;

  describe("the filter", () => {
    test.each(Object.entries(denied))("denies what %s", async (_why, calls) => {
      const outcomes = await probe(
        Object.fromEntries(calls.map((name) => [name, [numbersOf(name), nothing]])),
      );
      expect(Object.entries(outcomes).filter(([, outcome]) => outcome !== "EPERM")).toEqual([]);
    });

    test("denies sockets other than local ones and those of the internet", async () => {
      const { AF_INET, AF_NETLINK, AF_PACKET, AF_RDS, AF_ALG, AF_VSOCK } = families;
      const outcomes = await probe({
        alg: [socket, [AF_ALG, seqpacket, 0]],
        vsock: [socket, [AF_VSOCK, stream, 0]],
        packet: [socket, [AF_PACKET, raw, 0]],
        rds: [socket, [AF_RDS, seqpacket, 0]],
        netfilter: [socket, [AF_NETLINK, raw, 12]],
        "crypto netlink": [socket, [AF_NETLINK, raw, 21]],
        sctp: [socket, [AF_INET, stream, 132]],
        "a pair on the internet": [socketpair, [AF_INET, stream, 0, 0]],
        "alg, with bits the kernel does not see": [socket, [AF_ALG + high, seqpacket, 0]],
      });
      expect([...new Set(Object.values(outcomes))]).toEqual(["EPERM"]);
    });

    test.each([
      ["none", ["EACCES", "EACCES", "EACCES", "EPERM", "allowed"]],
      ["tcp", ["allowed", "EACCES", "EACCES", "EPERM", "allowed"]],
      ["full", ["allowed", "allowed", "EPERM", "allowed", "allowed"]],
    ] as const)("with the loopback %s allows these sockets", async (loopback, expected) => {
      const { AF_UNIX, AF_INET, AF_NETLINK } = families;
      const outcomes = await probe(
        {
          tcp: [socket, [AF_INET, stream, 0]],
          udp: [socket, [AF_INET, datagram, 17]],
          "raw ip": [socket, [AF_INET, raw, 1]],
          interfaces: [socket, [AF_NETLINK, raw, 0]],
          unix: [socket, [AF_UNIX, datagram, 0]],
        },
        { loopback },
      );
      expect(Object.values(outcomes)).toEqual(expected);
    });

    test("denies filters, of calls and of sockets, and takes sizes of buffers without using them", async () => {
      const outcomes = await probe({
        PR_SET_SECCOMP: [prctl, [22, 2, 0]],
        seccomp: [seccomp, [1, 0, 0]],
        SO_ATTACH_FILTER: [setsockopt, [noDescriptor, 1, 26, 0, 0]],
        SO_ATTACH_REUSEPORT_CBPF: [setsockopt, [noDescriptor, 1, 51, 0, 0]],
        SO_RCVBUF: [setsockopt, [noDescriptor, 1, 8, 0, 0]],
        SO_REUSEADDR: [setsockopt, [noDescriptor, 1, 2, 0, 0]],
      });
      const denials = Array<string>(4).fill("EPERM");
      expect(Object.values(outcomes)).toEqual([...denials, "allowed", "EBADF"]);
    });

    test("denies leases, owners and locks of open file descriptions, and allows a process its own locks", async () => {
      const fcntl = [72, 25] as const;
      const outcomes = await probe({
        F_SETLEASE: [fcntl, [noDescriptor, 1024, 0]],
        F_SETOWN: [fcntl, [noDescriptor, 8, 0]],
        F_SETOWN_EX: [fcntl, [noDescriptor, 15, 0]],
        F_OFD_SETLK: [fcntl, [noDescriptor, 37, 0]],
        F_OFD_SETLKW: [fcntl, [noDescriptor, 38, 0]],
        F_SETLK: [fcntl, [noDescriptor, 6, 0]],
      });
      expect(Object.values(outcomes)).toEqual([...Array<string>(5).fill("EPERM"), "EBADF"]);
    });

    test("hostile 53: the huge pages that a host reserves", async () => {
      const outcomes = await probe({
        mmap: [mmap, [0, 4096, 3, 0x22 | 0x4_0000, -1, 0]],
        memfd_create: [memfd, ["x", 4]],
        shmget: [shmget, [0, 4096, 0x800 | 0o1600]],
        "memfd_create without": [memfd, ["x", 0]],
      });
      expect(Object.values(outcomes)).toEqual(["EPERM", "EPERM", "EPERM", "allowed"]);
    });

    test("denies clone with a new namespace of any kind, and answers clone3 as if it did not exist", async () => {
      const kinds = [
        0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000,
      ];
      const flags = kinds.flatMap((flag) => [flag, flag + high]);
      const calls = flags.map((flag): [string, Call] => [
        flag.toString(16),
        [clone, [flag + 17, 0, 0, 0, 0]],
      ]);
      const outcomes = await probe(Object.fromEntries(calls));
      expect(Object.values(outcomes)).toEqual(calls.map(() => "EPERM"));
      expect(await probe({ clone3: [clone3, [0, 0]] })).toEqual({ clone3: "ENOSYS" });
    });

    test("denies every personality except the default", async () => {
      const numbers = numbersOf("personality");
      const outcomes = await probe({
        ask: [numbers, [0xffff_ffff]],
        default: [numbers, [0]],
        "no address randomisation": [numbers, [0x4_0000]],
        "executable data": [numbers, [0x40_0000]],
        "pages at zero": [numbers, [0x10_0000]],
      });
      expect(Object.values(outcomes)).toEqual(["allowed", "allowed", "EPERM", "EPERM", "EPERM"]);
    });

    test("kills a process that makes calls of another width", async () => {
      const outcomes = await probe({ "getpid of x32": [[0x4000_0000 + 39, null], []] });
      for (const outcome of Object.values(outcomes)) expect(outcome).toBe(`killed by ${sigsys}`);
    });

    test("is what denies them: without it the kernel gives other answers", async () => {
      const names = ["kcmp", "keyctl", "memfd_secret", "mq_unlink", "process_vm_readv", "unshare"];
      const calls = Object.fromEntries(
        names.map((name): [string, Call] => [name, [numbersOf(name), nothing]]),
      );
      expect(Object.values(await probe(calls))).toEqual(names.map(() => "EPERM"));
      // The mother has a filter of its own, under that of each job.
      if (backend === "zygote") return;
      expect(Object.values(await probe(calls, { seccomp: false }))).not.toContain("EPERM");
    });
  });

  test(`${runtime} allows what Python programs need`, async () => {
    const { out, err, end } = await runCode(place, program("needs"), { spec: { runtime } });
    expect({ failed: JSON.parse(out) as unknown, err, end }).toEqual({
      failed: {
        // This gVisor has no copy_file_range; the standard library does without.
        ...(runtime === "runsc" && { copying: "OSError(38, 'Function not implemented')" }),
        // Forks share the files of their image: see hostile 55.
        ...(backend === "zygote" && { inotify: "AssertionError()" }),
      },
      err: "",
      end: "succeeded - 0",
    });
  });

  test(`${runtime} allows what numpy and pandas need`, async () => {
    const image = await ensureScienceImage(rawEngine);
    const { out, err, end } = await runCode(place, program("science-needs"), {
      spec: { image, runtime, cpus: 2 },
    });
    expect({ failed: JSON.parse(out) as unknown, err, end }).toEqual({
      failed: {},
      err: "",
      end: "succeeded - 0",
    });
  });
});
