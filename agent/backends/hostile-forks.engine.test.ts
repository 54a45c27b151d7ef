import { randomUUID } from "node:crypto";
import { tmpdir } from "node:os";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { peakBytes } from "../../shared/testing/memory.ts";
import { source } from "../python/program.ts";
import { startForks } from "../testing/backend.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import {
  deriveImage,
  imageWithModules,
  rawEngine,
  removeImages,
  shell,
} from "../testing/raw-engine.ts";
import { runCode } from "../testing/run-code.ts";
import type { Forks } from "./forks.ts";

test("code cannot make other jobs wait for a file of their image", async () => {
  const place = await testEngine();
  const image = await deriveImage(place.image, "echo x > /shared; chown 1000:1000 /shared");
  try {
    const code = `
import fcntl, os
shared = os.open("/shared", os.O_RDONLY)
print(os.fstat(shared).st_uid)
for command, argument in ((fcntl.F_SETLEASE, fcntl.F_WRLCK), (fcntl.F_NOTIFY, fcntl.DN_ACCESS)):
    try: print(fcntl.fcntl(shared, command, argument))
    except PermissionError: print("denied")
print(fcntl.fcntl(shared, fcntl.F_DUPFD_CLOEXEC, 100), fcntl.fcntl(os.pipe()[0], fcntl.F_GETPIPE_SZ))`;
    const { out, err } = await runCode(place, code, { spec: { image }, backend: "zygote" });
    expect({ out, err }).toEqual({ out: "65534\ndenied\ndenied\n100 65536\n", err: "" });
  } finally {
    await removeImages(image);
  }
});

test("nothing that code does with device files shows in their times, which all jobs of a mother see", async () => {
  const code = `
import os
changed = []
for name in ("null", "zero", "full", "random", "urandom", "tty"):
    def times():
        found = os.stat("/dev/" + name)
        return found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns
    before = times()
    try: os.utime("/dev/" + name)
    except OSError: pass
    if name != "tty":
        with open("/dev/" + name, "r+b", 0) as device: device.read(1)
    if times() != before: changed.append(name)
print(changed)`;
  const { out, err } = await runCode(await testEngine(), code, { backend: "zygote" });
  expect({ out, err }).toEqual({ out: "[]\n", err: "" });
});

test("code cannot take the terminals of all others", async () => {
  const code = `
import os
opened = 0
try:
    while True:
        os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        opened += 1
except OSError as error: print(opened, error.strerror)`;
  const { out, err } = await runCode(await testEngine(), code, { backend: "zygote" });
  expect({ out, err }).toEqual({ out: "64 No space left on device\n", err: "" });
});

/** Takes all that it can of what the kernel counts by user, and waits until it is cancelled. */
const takes = `
import array, ctypes, fcntl, os, signal, socket, time
libc = ctypes.CDLL(None, use_errno=True)
held = []
def take(what, most):
    for n in range(most):
        try: held.append(what())
        except OSError: break
def fill():
    ends = os.pipe()
    fcntl.fcntl(ends[1], 1031, 1 << 20)
    return ends
def lend():
    ends = socket.socketpair()
    ends[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1] * 250))])
    ends[1].detach(), ends[0].detach()
def queue():
    if libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) != 0: raise OSError(ctypes.get_errno(), "sigqueue")
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
take(fill, 200)
take(lend, 200)
take(queue, 200000)
print("taken", flush=True)
time.sleep(60)`;

const uses = `
import array, ctypes, fcntl, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
ends = os.pipe()
print("pipe", fcntl.fcntl(ends[0], 1032), fcntl.fcntl(ends[0], 1031, 1 << 18))
a, b = socket.socketpair()
print("lent", a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]))]))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
print("signal", libc.sigqueue(os.getpid(), signal.SIGRTMIN, None))`;

test("hostile 52: what the kernel counts by user is not its neighbours'", async () => {
  const place = await testEngine();
  const cancel = new AbortController();
  const taken = Promise.withResolvers<void>();
  const options = { signal: cancel.signal, onOutput: () => taken.resolve() };
  const hostile = runCode(place, takes, { options, backend: "zygote" });
  await Promise.race([taken.promise, hostile]);
  const { out, err } = await runCode(place, uses, { backend: "zygote" });
  cancel.abort();
  const { report } = await hostile;
  expect(Buffer.from(report.stderr).toString()).toBe("");
  const own = "pipe 65536 262144\nlent 1\nsignal 0\n";
  expect({ out, err }).toEqual({ out: own, err: "" });
});

test("hostile 55: code in a fork hears nothing of what other jobs do with the files that it shares with them", async () => {
  const code = `
import asyncio, concurrent.futures, ctypes, errno, fcntl, json, logging, multiprocessing, os, sqlite3, subprocess, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def refused(call, *arguments):
    return errno.errorcode[ctypes.get_errno()] if getattr(libc, call)(*arguments) < 0 else "done"
print(refused("inotify_init1", 0), refused("inotify_init"), refused("fanotify_init", 0x200, 0))
try: print(fcntl.fcntl(os.open(os.path.dirname(os.__file__), os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS))
except PermissionError: print("denied")
try: open("/proc/sys/user/max_inotify_instances", "w").write("9")
except OSError as error: print(errno.errorcode[error.errno])
asyncio.run(asyncio.sleep(0))
print(multiprocessing.get_context("spawn").Queue() is not None, tempfile.TemporaryFile().write(b"x"))`;
  const { out, err } = await runCode(await testEngine(), code, { backend: "zygote" });
  expect({ out, err }).toEqual({ out: "EMFILE EMFILE EPERM\ndenied\nEROFS\nTrue 1\n", err: "" });
});

test("multiprocessing's key is not that of other jobs, though preloaded", async () => {
  const code = "import multiprocessing; print(multiprocessing.current_process().authkey.hex())";
  const spec = { preload: ["multiprocessing"] };
  const runs = [1, 2].map(async () =>
    runCode(await testEngine(), code, { spec, backend: "zygote" }),
  );
  const [first, second] = (await Promise.all(runs)).map(({ out }) => out);
  expect(first).toMatch(/^[0-9a-f]{64}\n$/);
  expect(first).not.toBe(second);
});

test("times of log records are relative to the job's own start, though logging is preloaded", async () => {
  const code = (wait: number) => `import logging, time
time.sleep(${wait})
print(logging.LogRecord("a", 10, "", 0, "", (), None).relativeCreated < 1000)`;
  const run = async (wait: number) =>
    runCode(await testEngine(), code(wait), { spec: { preload: ["logging"] }, backend: "zygote" });
  // The zygote is older than a second then.
  expect((await run(1.1)).out).toBe("False\n");
  expect((await run(0)).out).toBe("True\n");
});

test("buffers of sockets are bounded by the memory limit", async () => {
  const code = `
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receivers = []
for _ in range(800):
    receivers.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    receivers[-1].bind(("127.0.0.1", 0))
    for _ in range(3): sender.sendto(bytes(60_000), receivers[-1].getsockname())
held = 0
for receiver in receivers:
    try:
        while True: held += len(receiver.recv(65536, socket.MSG_DONTWAIT))
    except BlockingIOError: pass
print(0 < held < 64 << 20 or held)`;
  const spec = { memoryBytes: 64 * 1024 ** 2, loopback: "full" } as const;
  const { out, err } = await runCode(await testEngine(), code, { spec, backend: "zygote" });
  expect({ out, err }).toEqual({ out: "True\n", err: "" });
});

test("the namespaces that a zygote may make are bounded, and nobody inside can change that", async () => {
  const code = `
for name in ("user", "net"):
    path = "/proc/sys/user/max_%s_namespaces" % name
    print(open(path).read().strip())
    try: open(path, "w")
    except OSError as error: print(type(error).__name__, error.errno)`;
  const { out, err } = await runCode(await testEngine(), code, { backend: "zygote" });
  expect(err).toBe("");
  expect(out).toMatch(/^0\nOSError 30\n\d+\nOSError 30\n$/);
});

describe("hostile preloads", async () => {
  /** Modules of a hostile image. Their processes show a name that begins with "hostile". */
  const modules = {
    // Takes the place of the zygote's program. Each of its jobs leaves a process in the job's groups.
    usurper: String.raw`
import os, sys
program = '''
import os, signal, socket
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
control = socket.socket(fileno=1021)
control.send(b'{"problem": ""}')
while True:
    request, streams, _, _ = socket.recv_fds(control, 64, 2)
    if not request: signal.pause()
    if os.fork() == 0:
        os.write(streams[0], b"p")
        os.read(streams[0], 1)
        if os.fork() == 0:
            os.closerange(0, 1024)
            os.execvp("sleep", ["hostile-left", "3600"])
        os._exit(0)
    for fd in streams: os.close(fd)
'''
os.execv(sys.executable, ["python3", "-I", "-S", "-c", program, "hostile-zygote"])`,
    hider: String.raw`
import os
os.close(1021)
os.execvp("sleep", ["hostile-hider", "3600"])`,
    flooder: String.raw`
import os, socket, sys
program = '''
import socket
control = socket.socket(fileno=1021)
control.send(b'{"problem": ""}')
while True: control.send(b"x" * 60000)
'''
os.execv(sys.executable, ["python3", "-I", "-S", "-c", program, "hostile-flooder"])`,
    // Each open file keeps the keyring that its process had.
    keeper: String.raw`
import ctypes, os
libc = ctypes.CDLL(None)
call = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
told, tell = os.pipe()
if os.fork() == 0:
    for _ in range(1000):
        if libc.syscall(call, 1, None) < 0: break
        os.open("/dev/null", os.O_RDONLY)
    os.write(tell, b"x")
    os.execvp("sleep", ["hostile-keeper", "3600"])
os.read(told, 1)
os.close(told); os.close(tell)`,
    looker: String.raw`
import os
try: print(os.listdir("/input/bundles"), flush=True)
except OSError as error: print(error, flush=True)
os._exit(1)`,
  };

  const place = await testEngine();
  const labels = { agentId: randomUUID(), agentName: "sandbox-tests-mother", leaseId: null };
  let image = "";
  let forks: Forks;
  beforeAll(async () => {
    image = await imageWithModules(place.image, modules);
    forks = startForks(place, { mother: labels });
  });
  afterAll(async () => {
    await forks.close();
    await removeImages(image);
  });

  /** Runs a job; returns the mother's container. */
  async function runJob(preload: string[], env: Record<string, string> = {}): Promise<string> {
    const signal = AbortSignal.timeout(60_000);
    const sandbox = await forks.open(specWith({ image, labels, preload, env }), signal);
    try {
      const caps = { streamBytes: 1000, artifactBytes: 0 };
      const job = { code: "print('hi')", inputJson: "{}", timeoutMs: 60_000, caps };
      const report = await sandbox.run(job, { signal, spoolDir: tmpdir() });
      expect(Buffer.from(report.stdout).toString("utf8")).toBe("hi\n");
      return sandbox.containerId;
    } finally {
      await sandbox.close();
    }
  }

  /** Processes in the mother that show such a name. */
  async function processesNamed(name: string): Promise<number> {
    const { Processes } = (await rawEngine.getContainer(await runJob([])).top()) as {
      Processes: string[][];
    };
    return Processes.filter((words) => words.join(" ").includes(name)).length;
  }

  const untilNone = (name: string): Promise<void> =>
    vi.waitFor(async () => expect(await processesNamed(name)).toBe(0), 20_000);

  test("a hostile zygote that fails a job is replaced; it ends, and so does what it left in the job's groups", async () => {
    for (let jobs = 0; jobs < 3; jobs++)
      await expect(runJob(["usurper"])).rejects.toThrow("did not get ready");
    await untilNone("hostile-left 3600");
    await untilNone("hostile-zygote");
  });

  test("a zygote that closes its socket ends", async () => {
    await expect(runJob(["hider"])).rejects.toThrow("the zygote ended");
    await untilNone("hostile-hider");
  });

  test("a zygote that says more than that it is ready ends, and the mother's memory does not grow", async () => {
    await expect(runJob(["flooder"])).rejects.toThrow(/zygote has ended|did not get ready/);
    await untilNone("hostile-flooder");
    const { State } = await rawEngine.getContainer(await runJob([])).inspect();
    expect(peakBytes(State.Pid)).toBeLessThan(100 << 20);
  });

  test("a zygote cannot use up the keys of others", async () => {
    await runJob(["keeper"]).catch(() => {});
    expect(await processesNamed("hostile-keeper")).toBe(1);
  });

  test("a zygote does not see which packages others use", async () => {
    await expect(runJob(["looker"])).rejects.toThrow("Permission denied");
  });

  test("what unpacks files imports nothing from them", async () => {
    const unpack = Buffer.from(source("unpack")).toString("base64");
    const program = `
import os, sys
sys.path[:0] = ["/tmp"]
import unpack
os.makedirs("/tmp/files/tmp")
open("/tmp/files/tmp/hostile.py", "w").write("print('imported')")
def work():
    import hostile
print(unpack.fill("/tmp/files", work))`;
    const encoded = Buffer.from(program).toString("base64");
    const said = await shell(
      place.image,
      `echo ${unpack} | base64 -d > /tmp/unpack.py; echo ${encoded} | base64 -d > /tmp/program.py; python3 /tmp/program.py`,
    );
    expect(said).toBe("ModuleNotFoundError: No module named 'hostile'\n1\n");
  });
});
