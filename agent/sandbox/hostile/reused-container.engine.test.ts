import { describe, expect, test } from "vitest";
import {
  isListed,
  openReused,
  printedByNext,
  type ReusedSandbox,
} from "../testing/reused-sandbox.ts";

/** Finds the interpreter that all jobs are forked from, from inside a job. */
const zygote = `
import os
zygote = next(int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())
    and open("/proc/%s/cmdline" % p).read().startswith("python3\\0/code/main.py"))
`;

/** What gVisor lets nobody change. */
const onLinux: [what: string, act: string][] = [
  ["makes it idle", `os.sched_setscheduler(zygote, os.SCHED_IDLE, os.sched_param(0))`],
  // 10 is RLIMIT_LOCKS, which Python's module does not name.
  ["limits its locks", `import resource; resource.prlimit(zygote, 10, (1, 1))`],
  ["makes its disk idle", `import ctypes; ctypes.CDLL(None).syscall(251, 1, zygote, 3 << 13)`],
];

/** As for hostile code: runc in the engine tier, gVisor in the lab. */
const runtime = process.env["HOSTILE_RUNTIME"] ?? "runc";

describe(`under ${runtime}`, () => {
  const isGvisor = runtime === "runsc";
  const open = (spec = {}): Promise<ReusedSandbox> => openReused({ runtime, ...spec });

  test.each<[what: string, act: string]>([
    ["kills it", `os.kill(zygote, 9)`],
    ["ends it", `os.kill(zygote, 15)`],
    ["interrupts it", `os.kill(zygote, 2)`],
    ["stops it", `os.kill(zygote, 19)`],
    ["kills every process", `os.kill(-1, 9)`],
    ["lowers its priority", `os.setpriority(os.PRIO_PROCESS, zygote, 5)`],
    [
      "limits its open files",
      `import resource; resource.prlimit(zygote, resource.RLIMIT_NOFILE, (99, 99))`,
    ],
    [
      "pins it to one processor",
      `os.sched_setaffinity(zygote, {max(os.sched_getaffinity(zygote))})`,
    ],
    ...(isGvisor ? [] : onLinux),
  ])(
    "a job that tampers with the waiting interpreter loses its container: %s",
    async (_what, act) => {
      await using sandbox = await open();
      await sandbox.run(`${zygote}\n${act}`);
      expect(await sandbox.rearm()).toBe(false);
      expect(await isListed(sandbox.id)).toBe(false);
    },
  );

  test("a job can neither read nor change the process that the next one is forked from", async () => {
    await using sandbox = await open();
    const { out } = await sandbox.run(`${zygote}
import ctypes
libc = ctypes.CDLL(None)
def attempt(name, act):
    try: print(name, act())
    except OSError as e: print(name, type(e).__name__)
attempt("mem", lambda: open("/proc/%d/mem" % zygote, "r+b").close())
attempt("oom", lambda: open("/proc/%d/oom_score_adj" % zygote, "w").close())
attempt("ptrace", lambda: libc.ptrace(16, zygote, 0, 0))
attempt("seize", lambda: libc.ptrace(0x4206, zygote, 0, 0))
attempt("pgid", lambda: os.setpgid(zygote, 0))
attempt("vm", lambda: libc.process_vm_writev(zygote, None, 0, None, 0, 0))
for fd in (0, 1, 2, 1020, 1021, 1022, 1023):
    try: os.write(os.open("/proc/%d/fd/%d" % (zygote, fd), os.O_WRONLY), b"f")
    except OSError: pass
    else: print("written", fd)
`);
    // gVisor lets its descriptors be opened: all three are /dev/null.
    const writable = isGvisor ? "written 0\nwritten 1\nwritten 2\n" : "";
    expect(out).toBe(
      `mem PermissionError\noom PermissionError\nptrace -1\nseize -1\npgid ProcessLookupError\nvm -1\n${writable}`,
    );
    expect(await sandbox.rearm()).toBe(true);
    expect((await sandbox.run("print(1)")).out).toBe("1\n");
  });

  test("processes that hide, hold files open and fork away are gone before the next job", async () => {
    await using sandbox = await open();
    await sandbox.run(`
import os, signal, time
for i in range(20):
    if os.fork() == 0:
        os.setsid()
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
        if i < 5:
            while True:
                if os.fork() != 0: os._exit(0)
        if os.fork() == 0: time.sleep(600)
        os._exit(0)
time.sleep(0.1)`);
    const count = `import os; print(len([p for p in os.listdir("/proc") if p.isdigit()]))`;
    expect(["3\n", "removed"]).toContain(await printedByNext(sandbox, count));
  });

  test("a fork bomb that outlives its job cannot outlive its container", async () => {
    await using sandbox = await open();
    await sandbox.run(
      `import os\nfor _ in range(3):\n    if os.fork() == 0:\n        while True:\n            try: os.fork()\n            except OSError: pass`,
    );
    expect(["1\n", "removed"]).toContain(await printedByNext(sandbox, "print(1)"));
  });

  test("a job cannot change the next one's network", async () => {
    await using sandbox = await open();
    const { out } = await sandbox.run(`
import ctypes, os, socket, struct
libc = ctypes.CDLL(None)
NEWUSER, NEWNS = 0x10000000, 0x20000
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
def is_denied(pid):
    if pid == 0: os._exit(0)
    return pid < 0
class Clone3(ctypes.Structure): _fields_ = [("flags", ctypes.c_ulong), ("rest", ctypes.c_ulong * 7)]
asked = Clone3(NEWUSER)
asked.rest[3] = 17
print(*(is_denied(libc.syscall(number, flags | 17, 0, 0, 0, 0)) for flags in (NEWUSER, NEWUSER | NEWNS)))
print(is_denied(libc.syscall(435, ctypes.byref(asked), 64)), libc.unshare(NEWUSER))
attribute = struct.pack("HH", 8, 2) + socket.inet_aton("10.66.66.66")
address = struct.pack("BBBBI", 2, 32, 0, 0, 1) + attribute + struct.pack("HH", 8, 1) + attribute[4:]
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
route.send(struct.pack("IHHII", 16 + len(address), 20, 0x605, 1, 0) + address)
print(struct.unpack("i", route.recv(4096)[16:20])[0] < 0)`);
    expect(out).toBe("True True\nTrue -1\nTrue\n");
    const bind = `
import socket
try: print(socket.create_server(("10.66.66.66", 0)))
except OSError: print("no")`;
    // Linux frees the socket a little after its end.
    expect(["no\n", "removed"]).toContain(await printedByNext(sandbox, bind));
  });
});
