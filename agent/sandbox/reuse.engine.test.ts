import { readFileSync } from "node:fs";
import { describe, expect, test, vi } from "vitest";
import { ensureScienceImage } from "../../scripts/setup/science-image.ts";
import { labels } from "./profile.ts";
import { testEngine } from "./testing/engine.ts";
import { deriveImage, rawEngine, removeImages } from "./testing/raw-engine.ts";
import { openReused, type ReusedSandbox } from "./testing/reused-sandbox.ts";
import { EngineError } from "./types.ts";

const late = { timeout: 50_000, interval: 100 };

const read = (name: string): string =>
  readFileSync(new URL(`testing/${name}`, import.meta.url), "utf8");
const look = read("residue-look.py");
const litter = read("residue-litter.py");

/** The interpreter that all jobs are forked of, as a job can find it. */
const zygote = `
import os
zygote = next(int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())
    and open("/proc/%s/cmdline" % p).read().startswith("python3\\0/code/main.py"))
`;

/** What gVisor does not let anyone change. */
const onLinux: [what: string, act: string][] = [
  ["makes it idle", `os.sched_setscheduler(zygote, os.SCHED_IDLE, os.sched_param(0))`],
  // 10 is RLIMIT_LOCKS, which Python's module does not name.
  ["takes its locks", `import resource; resource.prlimit(zygote, 10, (1, 1))`],
  ["makes its disk idle", `import ctypes; ctypes.CDLL(None).syscall(251, 1, zygote, 3 << 13)`],
];

/** As for hostile code: runc in the engine tier, gVisor in the lab. */
const runtime = process.env["HOSTILE_RUNTIME"] ?? "runc";

describe(`under ${runtime}`, () => {
  const isGvisor = runtime === "runsc";
  const open = (spec = {}): Promise<ReusedSandbox> => openReused({ runtime, ...spec });

  test("a job finds nothing that the one before it left", async () => {
    await using sandbox = await open();
    const first = await sandbox.run(look);
    expect(first).toMatchObject({ end: "succeeded - 0", err: "" });
    expect(await sandbox.rearm()).toBe(true);
    const littered = await sandbox.run(litter, { inputJson: '{"traces": "of-an-earlier-job"}' });
    expect(littered).toMatchObject({ out: "littered\n", err: "" });
    expect(await sandbox.rearm()).toBe(true);
    const second = await sandbox.run(look);
    expect(second.out).toBe(first.out);
    expect(second.err).toBe("");
  });

  test("sockets that are in transit and that no process holds are noticed", async () => {
    await using sandbox = await open();
    await sandbox.run(`
import socket
a, b = socket.socketpair()
for one in (a, b): socket.send_fds(one, [b"x"], [a.fileno(), b.fileno()])`);
    // Linux collects them some time, gVisor never does.
    const found = await next(sandbox, `print(open("/proc/net/unix").read().count("\\n"))`);
    expect(isGvisor ? ["removed"] : ["3\n", "removed"]).toContain(found);
  });

  test("each job has its own process, output, exit code, time and memory", async () => {
    await using sandbox = await open();
    // gVisor's clock counts waiting for a CPU, too.
    const burnS = isGvisor ? 3 : 0.5;
    const heavy = await sandbox.run(`
import sys, time
x = b"x" * 60_000_000
end = time.process_time() + ${burnS}
while time.process_time() < end: pass
print("first"); raise KeyError("x")`);
    expect(heavy).toMatchObject({ end: "failed key_error 1", out: "first\n" });
    expect(heavy.report.usage?.cpuTimeMs).toBeGreaterThan(900 * burnS);
    expect(heavy.report.usage?.maxRssBytes).toBeGreaterThan(60_000_000);
    expect(await sandbox.rearm()).toBe(true);
    const light = await sandbox.run(`print("second")`);
    expect(light).toMatchObject({ end: "succeeded - 0", out: "second\n", err: "" });
    expect(light.report.usage?.cpuTimeMs).toBeLessThan(500 * burnS);
    expect(light.report.usage?.maxRssBytes).toBeLessThan(40_000_000);
  });

  test("a container serves as many jobs as its job type says, and is then removed", async () => {
    await using sandbox = await open({ reuse: 3 });
    for (const left of [2, 1]) {
      await sandbox.run("");
      expect(sandbox.jobsLeft()).toBe(left);
      expect(await sandbox.rearm()).toBe(true);
    }
    await sandbox.run("");
    expect(await sandbox.rearm()).toBe(false);
    expect(await exists(sandbox.id)).toBe(false);
  });

  test.each<[what: string, act: string]>([
    ["kills it", `os.kill(zygote, 9)`],
    ["ends it", `os.kill(zygote, 15)`],
    ["interrupts it", `os.kill(zygote, 2)`],
    ["stops it", `os.kill(zygote, 19)`],
    ["kills everyone", `os.kill(-1, 9)`],
    ["makes it nice", `os.setpriority(os.PRIO_PROCESS, zygote, 5)`],
    [
      "takes its limits",
      `import resource; resource.prlimit(zygote, resource.RLIMIT_NOFILE, (99, 99))`,
    ],
    [
      "leaves it one processor",
      `os.sched_setaffinity(zygote, {max(os.sched_getaffinity(zygote))})`,
    ],
    ...(isGvisor ? [] : onLinux),
  ])("a job that %s gets its container removed", async (_what, act) => {
    await using sandbox = await open();
    await sandbox.run(`${zygote}\n${act}`);
    expect(await sandbox.rearm()).toBe(false);
    expect(await exists(sandbox.id)).toBe(false);
  });

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
    expect(["3\n", "removed"]).toContain(await next(sandbox, count));
  });

  test("a fork bomb that outlives its job cannot outlive its container", async () => {
    await using sandbox = await open();
    await sandbox.run(
      `import os\nfor _ in range(3):\n    if os.fork() == 0:\n        while True:\n            try: os.fork()\n            except OSError: pass`,
    );
    expect(["1\n", "removed"]).toContain(await next(sandbox, "print(1)"));
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
    expect(["no\n", "removed"]).toContain(await next(sandbox, bind));
  });

  test.each([
    ["ran out of time", "while True: pass", { timeoutMs: 200 }],
    ["ran out of memory", "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1", {}],
  ])("a container whose job %s is not used again", async (_what, code, job) => {
    await using sandbox = await open();
    await sandbox.run(code, job);
    expect(await sandbox.rearm()).toBe(false);
  });

  test("a container with files that take too long to remove is given up", async () => {
    await using sandbox = await open({ memoryBytes: 1024 ** 3 });
    await sandbox.run(
      `import os\nos.chdir("/tmp")\nfor i in range(3000): os.mkdir("d"); os.chdir("d")\nfor i in range(100_000): os.close(os.open("n%d" % i, os.O_CREAT | os.O_WRONLY))`,
    );
    const found = await next(sandbox, `import os; print(os.listdir("/tmp"))`);
    expect(["[]\n", "removed"]).toContain(found);
  });

  test("random values differ between jobs", async () => {
    const preload = ["random", "ssl", "uuid", "tempfile", "secrets"];
    await using sandbox = await open({ preload });
    const code = `
import os, random, secrets, ssl, tempfile, uuid
for x in (random.random(), random.SystemRandom().random(), os.urandom(8), secrets.token_hex(), ssl.RAND_bytes(8),
          uuid.uuid4(), uuid.uuid1(), tempfile.mktemp(), random.Random().random()): print(x)`;
    expect(new Set(await printedByTwo(sandbox, code)).size).toBe(18);
  });

  test("random values of numpy differ between jobs", async () => {
    const image = await ensureScienceImage(rawEngine);
    const spec = { image, preload: ["numpy"], memoryBytes: 512 * 1024 ** 2 };
    await using sandbox = await open(spec);
    const code = `
import numpy as np
for x in (np.random.rand(), np.random.RandomState().rand(), np.random.default_rng().random()): print(x)`;
    expect(new Set(await printedByTwo(sandbox, code)).size).toBe(6);
  });
});

test("a container with a socket that waits after its close is given up", async () => {
  await using sandbox = await openReused();
  await sandbox.run(`
import socket
server = socket.create_server(("127.0.0.1", 5000))
client = socket.create_connection(server.getsockname())
there, _ = server.accept()
client.close(); there.recv(1); there.close()`);
  expect(await sandbox.rearm()).toBe(false);
});

test("a container with an IPv6 flow label, which outlives its socket, is given up", async () => {
  await using sandbox = await openReused();
  const { out } = await sandbox.run(`
import socket, struct
label = struct.pack("16sIBBHHHI", b"\\xfd\\x00secret", socket.htonl(256), 0, 255, 1, 60, 60, 0)
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(socket.IPPROTO_IPV6, 32, label)
print(open("/proc/net/ip6_flowlabel").read().count(b"secret".hex()))`);
  expect(out).toBe("1\n");
  expect(await sandbox.rearm()).toBe(false);
});

test("without the filter of system calls a container serves one job", async () => {
  await using sandbox = await openReused({ seccomp: false });
  await sandbox.run("");
  expect(await sandbox.rearm()).toBe(false);
});

test("with a folder of its image that outlives a job a container serves one job", async () => {
  const { image: base } = await testEngine();
  const image = await deriveImage(base, "mkdir -m 777 /data", ["VOLUME /data"]);
  try {
    await using sandbox = await openReused({ image });
    await sandbox.run("");
    expect(await sandbox.rearm()).toBe(false);
  } finally {
    await removeImages(image);
  }
});

test.each([
  ["keeps a file open", 'keep = open("/etc/passwd")'],
  ["shares memory", "import mmap; keep = mmap.mmap(-1, 4096)"],
])("with a preloaded module that %s a container serves one job", async (_what, source) => {
  const script = `d=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && mkdir -p $d && echo '${source}' > $d/lasting.py`;
  const image = await deriveImage((await testEngine()).image, script);
  try {
    await using sandbox = await openReused({ image, preload: ["lasting"] });
    expect((await sandbox.run(`import sys; print("lasting" in sys.modules)`)).out).toBe("True\n");
    expect(await sandbox.rearm()).toBe(false);
  } finally {
    await removeImages(image);
  }
});

/** The lines that two jobs of one container print. */
async function printedByTwo(sandbox: ReusedSandbox, code: string): Promise<string[]> {
  const first = await sandbox.run(code);
  const second = (await sandbox.rearm()) && (await sandbox.run(code));
  return `${first.out}${second && second.out}`.trim().split("\n");
}

/** What the next job prints; "removed" where there is none, since the container is gone. */
async function next(sandbox: ReusedSandbox, code: string): Promise<string> {
  const isLate = (error: unknown): boolean => {
    if (!(error instanceof EngineError)) throw error;
    return false;
  };
  if (await sandbox.rearm().catch(isLate)) return (await sandbox.run(code)).out;
  // A busy engine may end a bomb of gVisor's only after its agent has stopped waiting for that.
  await vi.waitFor(async () => expect(await exists(sandbox.id)).toBe(false), late);
  return "removed";
}

async function exists(id: string): Promise<boolean> {
  const { engine } = await testEngine();
  const known = await engine.list(labels.agentId, "agent-1", AbortSignal.timeout(60_000));
  return JSON.stringify(known).includes(id);
}
