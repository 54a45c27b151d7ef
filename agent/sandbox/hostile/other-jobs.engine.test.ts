import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { backend } from "../testing/backend.ts";
import { hostileCases } from "../testing/hostile.ts";

hostileCases(({ run, isGvisor }) => {
  describe("hostile 27: the supervisor", () => {
    test("shows only its program and the job type's environment", async () => {
      const { out } = await run(
        `
import os
known = {"%s=%s" % pair for pair in os.environ.items()} | {"HOME=/root"}
for path in ("/proc/1/environ", "/proc/1/task/1/environ"):
    try: print(sorted(entry for entry in open(path).read().split("\\0") if entry and entry not in known))
    except PermissionError: print([])
for path in ("/proc/1/mem", "/proc/1/maps", "/proc/1/io", "/proc/1/stack", "/proc/1/fd/0", "/proc/1/fd/1", "/proc/1/cwd/x", "/proc/1/root/x"):
    for how in ("rb", "r+b"):
        try: print(path, open(path, how).read(1))
        except OSError: pass
for act in (lambda: os.listdir("/proc/1/fd"), lambda: os.readlink("/proc/1/exe"), lambda: os.readlink("/proc/1/root")):
    try: print(act())
    except OSError: print("no")
print(open("/proc/1/cmdline").read().split("\\0")[:5])`,
        { spec: { env: { MODE: "x" } } },
      );
      // gVisor shows to everyone where a process's memory lies, and which descriptors it has.
      const [maps, descriptors] = isGvisor
        ? ["(/proc/1/maps b'.'\\n)?", String.raw`\[('\d+'(, )?)+\]`]
        : ["", "no"];
      // A fork has its zygote's command line, which is the code's.
      const command =
        backend === "zygote"
          ? String.raw`\['python3', '/code/main.py', ''\]`
          : String.raw`\['python3', '-I', '-S', '-u', '-c'\]`;
      const shown = String.raw`^\[\]\n\[\]\n${maps}${descriptors}\nno\nno\n${command}\n$`;
      expect(out).toMatch(new RegExp(shown));
    });

    test("shows no other job and no process of the host", async () => {
      const { out } = await run(`
import os
pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
print(sorted(open("/proc/%d/cmdline" % pid).read().split("\\0")[-2][:20] for pid in pids if pid != 1), len(pids))
groups = [folder for folder, _, files in os.walk("/sys/fs/cgroup") if "cgroup.procs" in files]
print([group for group in groups if os.path.dirname(group) in groups])
print({int(pid) for group in groups for pid in open(group + "/cgroup.procs")} - set(pids))`);
      expect(out).toBe("['/code/main.py'] 2\n[]\nset()\n");
    });
  });

  test("hostile 28: the next job finds nothing that a job left in files and memory", async () => {
    const secret = `residue-${randomUUID()}`;
    const leave = await run(`
import ctypes, mmap, os, socket, threading
secret = "${secret}"
for folder in ("/tmp", "/output", "/dev/shm", "/var/tmp", "/run", "/dev", "/dev/mqueue", "/home", "/root", "/var/lock"):
    for name in ("x", ".hidden"):
        try: open(os.path.join(folder, name), "w").write(secret)
        except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
key = libc.shmget(0x41524C4B, 4096, 0o1666); libc.semget(0x41524C4B, 1, 0o1666); libc.msgget(0x41524C4B, 0o1666)
abstract = socket.socket(socket.AF_UNIX); abstract.bind("\\0residue")
memory = mmap.mmap(-1, 96 << 20); memory.write((secret.encode() * 20)[:640] * 150_000)
if os.fork() == 0:
    os.setsid()
    import time; time.sleep(600)`);
    expect(leave).toMatchObject({ end: "succeeded - 0", err: "" });

    const { end, out } = await run(`
import ctypes, glob, mmap, os, socket
found = [p for folder in ("/tmp", "/output", "/dev/shm", "/dev/mqueue", "/var/tmp", "/run", "/home", "/root") for p in glob.glob(folder + "/*") + glob.glob(folder + "/.h*") if os.path.isfile(p)]
libc = ctypes.CDLL(None, use_errno=True)
found += [call for call, arguments in (("shmget", (0, 0)), ("semget", (0, 0)), ("msgget", (0,))) if getattr(libc, call)(0x41524C4B, *arguments) >= 0]
try: socket.socket(socket.AF_UNIX).connect("\\0residue"); found.append("socket")
except OSError: pass
fresh = mmap.mmap(-1, 64 << 20)
found += [at for at in range(0, len(fresh), 4096) if fresh[at:at + 4096].strip(b"\\0")]
libc.malloc.restype = ctypes.c_void_p
big = libc.malloc(ctypes.c_size_t(32 << 20))
needle = "-".join(["residue", "${secret.slice("residue-".length)}"]).encode()
found += ["malloc"] * (needle in ctypes.string_at(big, 32 << 20))
print(found)`);
    expect({ end, out }).toEqual({ end: "succeeded - 0", out: "[]\n" });
  });

  test("hostile 28: the page cache of the image's files cannot be written", async () => {
    const { out } = await run(`
import mmap, os, sys
path = os.__file__
tried = []
for how in (os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC):
    try: os.open(path, how); tried.append(how)
    except OSError: pass
file = os.open(path, os.O_RDONLY)
for act in (lambda: mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE), lambda: os.fchmod(file, 0o777), lambda: os.truncate(path, 0), lambda: open("/proc/self/fd/%d" % file, "r+b")):
    try: act(); tried.append(act)
    except OSError: pass
private = mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
private[:6] = b"raise!"
into, out_of = os.pipe()
os.write(out_of, b"raise!" * 100)
try: os.splice(into, os.open(path, os.O_RDONLY), 6, offset_dst=0); tried.append("splice")
except (OSError, AttributeError): pass
print(tried, open(path, "rb").read(6) == b"raise!")`);
    expect(out).toBe("[] False\n");
    expect(await run("import os; print(open(os.__file__).read(6))")).toMatchObject({ err: "" });
  });

  test("hostile 64: files of /proc whose reading holds up the host", async () => {
    const { out } = await run(`
import os
shown = [os.path.join(folder, name) for folder, _, names in os.walk("/proc/fs") for name in names]
for path in ("/proc/locks", "/proc/kallsyms", "/proc/self/root/proc/locks"):
    try: shown += [path] if open(path).read() else []
    except OSError: pass
print(shown)
for path in ("cpuinfo", "loadavg", "meminfo", "mounts", "net/tcp", "stat", "self/status", "uptime"):
    if not open("/proc/" + path).read(): print("missing", path)`);
    // In a container of the job's own, PID 1 reads this file to count the job's locks. gVisor's file shows no locks.
    const locks = backend === "zygote" || isGvisor ? "" : "'/proc/locks', ";
    const same = locks && "'/proc/self/root/proc/locks'";
    expect(out).toBe(`[${locks}${same}]\n`);
  });
});
