import { describe, expect, test } from "vitest";
import { hostileCases } from "../testing/hostile.ts";

const allocate = "x = []\nwhile True: x.append(bytearray(1_000_000))";
const spec = { memoryBytes: 64 * 1024 * 1024 };

hostileCases(({ run, isGvisor }) => {
  test("hostile 5: allocates past the limit", async () => {
    // Under gVisor the supervisor dies with the code: give it time to pass on what was printed.
    const pause = isGvisor ? "import time; time.sleep(3)" : "";
    const { end, out } = await run(`print("before")\n${pause}\n${allocate}`, { spec });
    expect({ end, out }).toEqual({ end: "oom oom 137", out: "before\n" });
  });

  test("hostile 6: a child runs out of memory, and its parent ends well", async () => {
    const code = `import subprocess, sys\nprint(subprocess.run([sys.executable, "-c", """${allocate}"""]).returncode)`;
    const { end, out } = await run(code, { spec });
    // gVisor is a single process to the kernel that kills: all of the job goes.
    const gvisor = { end: "oom oom 137", out: "" };
    expect({ end, out }).toEqual(isGvisor ? gvisor : { end: "succeeded - 0", out: "-9\n" });
  });

  // gVisor shows no control group, so the code cannot know how much is left. There, the whole job ends as oom.
  test.each(isGvisor ? [] : [64, 256, 512])(
    "hostile 65: memory that outlives the code, up to %s KiB below the limit",
    async (leftKiB) => {
      const code = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
groups = "/sys/fs/cgroup/memory" if os.path.exists("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"
used, most = (next(p for p in (groups + "/" + n for n in names) if os.path.exists(p)) for names in (
    ("memory.usage_in_bytes", "memory.current"), ("memory.limit_in_bytes", "memory.max")))
read = lambda path: int(open(path).read())
with open("/output/result.json", "w") as file: file.write('{"kept": 1}')
with open("/output/a.txt", "w") as file: file.write("kept")
size = read(most) - read(used) - (6 << 20)
segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)
ctypes.memset(libc.shmat(segment, None, 0), 1, size)
# dd takes little memory itself, so what it leaves free is still free when it has ended.
os.execv("/bin/sh", ["sh", "-c", """
read most < %s
read used < %s
dd if=/dev/zero of=/dev/shm/x bs=4k count=$(( (most - used) / 4096 - ${leftKiB} / 4 - 16 )) 2>/dev/null
""" % (most, used)])`;
      const { end, files } = await run(code, { spec: { memoryBytes: 128 * 1024 * 1024 } });
      expect({ end, files }).toEqual({ end: "succeeded - 0", files: { "a.txt": "kept" } });
    },
  );

  describe("hostile 9: full folders", () => {
    test.each(["/tmp", "/output", "/dev/shm"])("%s", async (folder) => {
      const code = `
import os
file = os.open("${folder}/x", os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(file, b"x" * 1_000_000)
except OSError as e: print(e.strerror)`;
      const { end, out } = await run(code, { spec });
      expect({ end, out }).toEqual({ end: "succeeded - 0", out: "No space left on device\n" });
    });

    test("all three, with small files and with names", async () => {
      const code = `
import os
for folder in ("/tmp", "/output", "/dev/shm"):
    try:
        for i in range(200_000): os.close(os.open("%s/%0200d" % (folder, i), os.O_CREAT | os.O_WRONLY))
    except OSError as e: print(e.strerror)`;
      const { end } = await run(code, { spec: { memoryBytes: 128 * 1024 * 1024 } });
      // Names cost the kernel's memory, which the limit counts, and no space of the folder.
      expect(["succeeded - 0", "oom oom 137", "failed file_error 0"]).toContain(end);
    });

    test("all three, and memory too: the supervisor survives to report it", async () => {
      const code = `
import os
print("on")
for folder in ("/tmp", "/output", "/dev/shm"):
    try:
        f = os.open(folder + "/x", os.O_CREAT | os.O_WRONLY)
        while True: os.write(f, b"x" * 1_000_000)
    except OSError: pass
${allocate}`;
      const { end, out } = await run(code, { spec });
      expect({ end, out }).toEqual({ end: "oom oom 137", out: "on\n" });
    });
  });
});
