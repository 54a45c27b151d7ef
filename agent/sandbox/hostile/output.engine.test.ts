import { describe, expect, test } from "vitest";
import { hostileCases } from "../../testing/hostile.ts";
import type { Settings } from "../../testing/run-code.ts";

hostileCases(({ run, canaryPath, isGvisor }) => {
  const skips = ({ report }: Awaited<ReturnType<typeof run>>) =>
    report.skipped.map(({ reason, count }) => [reason, count]);

  test("hostile 16: links to files of the host, of the supervisor, and to folders", async () => {
    const result = await run(`
import os
targets = ["/etc/shadow", "/proc/1/environ", "/proc/1/mem", "/", "${canaryPath()}", "fine", "/output", "link0"]
for i, target in enumerate(targets): os.symlink(target, "link%d" % i)
os.symlink("loop", "loop")
open("fine", "w").write("y")`);
    expect(result.files).toEqual({ fine: "y" });
    expect(result.report.skipped).toEqual([
      {
        reason: "not_a_regular_file",
        count: 9,
        names: ["link0", "link1", "link2", "link3", "link4"],
      },
    ]);
  });

  describe("hostile 17: entries that are not plain files", () => {
    test("hard links, pipes, sockets", async () => {
      const result = await run(`
import os, socket
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open("one", "w").write("x"); os.link("one", "two")
for there in ("/code/main.py", "/input/data.json", "/etc/passwd"):
    try: os.link(there, "stolen")
    except OSError as e: print(e.strerror)
open("fine", "w").write("y")`);
      expect(result.out).toBe("Invalid cross-device link\n".repeat(3));
      expect(result.files).toEqual({ fine: "y" });
      expect(skips(result)).toEqual([
        ["hard_link", 2],
        ["not_a_regular_file", 2],
      ]);
    });

    test("a pipe with a reader and a writer that keep it open", async () => {
      const result = await run(`
import os, time
os.mkfifo("pipe"); os.mkfifo("result.json")
if os.fork() == 0:
    held = [os.open(name, os.O_RDWR) for name in ("pipe", "result.json")]
    time.sleep(600)`);
      expect(result.end).toBe("failed json_error 0");
    });

    test("a device cannot be made, or is one of gVisor's own and skipped", async () => {
      const result = await run(`
import os, stat
for name, kind, number in (("zero", stat.S_IFCHR, (1, 5)), ("mem", stat.S_IFCHR, (1, 1)), ("disk", stat.S_IFBLK, (8, 0)), ("result.json", stat.S_IFCHR, (1, 5))):
    try: os.mknod(name, kind | 0o666, os.makedev(*number)); print("made")
    except OSError as e: print(e.strerror)
for name in ("mem", "disk"):
    try: print(open(name, "rb").read(1))
    except OSError as e: print(type(e).__name__)`);
      // gVisor's kernel lets anyone make a node; what it leads to are devices of that kernel alone.
      const gvisor = "made\n".repeat(4) + "OSError\n".repeat(2);
      const runc = "Operation not permitted\n".repeat(4) + "FileNotFoundError\n".repeat(2);
      expect({ out: result.out, files: result.files }).toEqual({
        out: isGvisor ? gvisor : runc,
        files: {},
      });
      expect(skips(result)).toEqual(isGvisor ? [["not_a_regular_file", 3]] : []);
      expect(result.report.result.kind).toBe(isGvisor ? "invalid" : "absent");
    });
  });

  describe("hostile 18: too much", () => {
    test("a sparse terabyte", async () => {
      const { end, out, files } = await run(`
import os
sparse = os.open("sparse", os.O_CREAT | os.O_WRONLY)
for size in (1 << 40, 1 << 28):
    try: os.truncate(sparse, size)
    except OSError as e: print(e.strerror)
open("a", "w").write("kept")`);
      expect({ end, out }).toEqual({ end: "failed file_error 0", out: "File too large\n" });
      expect(files).toEqual({ a: "kept" });
    });

    test("tens of thousands of files", async () => {
      const result = await run(
        `
import os
open("/output/result.json", "w").write('{"a": 1}')
for i in range(20_000): os.close(os.open("/output/n%d" % i, os.O_CREAT | os.O_WRONLY))`,
        { spec: { memoryBytes: 1024 ** 3 } },
      );
      expect(result.end).toBe("failed file_error 0");
      expect(result.verdict.error?.message).toContain("too many files");
      expect(result.report.lostReason).toBeNull();
      expect(result.report.skipped.map(({ reason }) => reason)).toEqual(["too_many_files"]);
      expect(Object.keys(result.files).length).toBeLessThanOrEqual(1000);
      expect(result.report.result).toEqual({ kind: "object", text: '{"a": 1}' });
    });

    test("a tree that is three thousand folders deep, and one that is wide", async () => {
      const result = await run(`
import os
for i in range(3000): open("f", "w").close(); os.mkdir("d"); os.chdir("d")
os.chdir("/output")
for i in range(3000): os.makedirs("w%d/x" % i)
open("/output/kept", "w").write("x")`);
      expect(result.end).toMatch(/^(failed file_error|succeeded -) 0$/);
      expect(result.report.lostReason).toBeNull();
      expect(skips(result)).toEqual([["too_deep", 1]]);
      const paths = Array.from({ length: 32 }, (_, depth) => `${"d/".repeat(depth)}f`);
      expect(Object.keys(result.files).sort()).toEqual([...paths, "kept"].sort());
    });
  });

  test("hostile 19: names that do not fit into a URL or a header", async () => {
    const result = await run(String.raw`
import os
names = ["cr\rlf\n", "\udcff", "\u202egnp", "\u2066x", "back\\slash", "\x1b[31m", "\x7f", "\x85", "_code.py", "..\\x", "\u2028"]
names += ['quote"', "%2e", "n" * 255, "..x", "a b;c", "größe", "-rf", "😀", " "]
for name in names: open("/output/" + name, "w").close()
os.mkdir("bad\nfolder"); open("bad\nfolder/x", "w").close()`);
    const kept = ['quote"', "%2e", "n".repeat(255), "..x", "a b;c", "größe", "-rf", "😀", " "];
    expect(Object.keys(result.files).sort()).toEqual(kept.sort());
    expect(skips(result)).toEqual([["unsafe_name", 12]]);
    for (const name of result.report.skipped[0]!.names) expect(name).toMatch(/^[ -~]*$/);
  });

  describe("hostile 22: /output itself", () => {
    test("cannot be moved, removed, closed or covered", async () => {
      const { end, out, files } = await run(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
open("kept", "w").write("x")
for act in (lambda: os.rename("/output", "/moved"), lambda: os.rename("/tmp", "/output"), lambda: os.rmdir("/output"), lambda: os.chmod("/output", 0)):
    try: act(); print("done")
    except OSError: print("no")
for over in (b"tmpfs", b"proc"): print(libc.mount(b"none", b"/output", over, 0, None))
print(libc.mount(b"/tmp", b"/output", None, 4096, None), libc.umount2(b"/output", 2))`);
      expect({ end, out, files }).toEqual({
        end: "succeeded - 0",
        out: "no\nno\nno\nno\n-1\n-1\n-1 -1\n",
        files: { kept: "x" },
      });
    });

    test("cannot be covered from a new namespace", async () => {
      const kept = { kept: "x" };
      const { files } = await run(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
open("/output/kept", "w").write("x")
libc.unshare(0x10000000 | 0x20000)
libc.mount(b"none", b"/output", b"tmpfs", 0, None)
open("/output/hidden", "w").write("y")`);
      // gVisor lets the code make namespaces, and a mount in them is seen by the code alone.
      expect(files).toMatchObject(isGvisor ? kept : { ...kept, hidden: "y" });
    });

    test("keeps files that the code made unreadable", async () => {
      const { files, report } = await run(`
import os
os.makedirs("a/b"); open("a/b/x", "w").write("1"); open("y", "w").write("2"); open("result.json", "w").write("{}")
for name in ("y", "result.json", "a/b", "a"): os.chmod(name, 0)`);
      expect(files).toEqual({ "a/b/x": "1", y: "2" });
      expect(report.result).toEqual({ kind: "object", text: "{}" });
    });
  });
});

hostileCases(({ run }) => {
  describe("hostile 67: results that break their limits or their protocol", () => {
    async function runCell(code: string, settings: Settings = {}) {
      const job = { results: true, ...settings.job };
      const { report, ...rest } = await run(code, { ...settings, job });
      const texts = report.items.map(({ data }) => data["text/plain"] ?? "");
      return { ...rest, report, texts, isCut: report.itemsTruncated };
    }

    test("a million items", async () => {
      const { texts, isCut, report, end } = await runCell(
        "for n in range(1_000_000): display(n)\n'last'",
        { job: { timeoutMs: 120_000 } },
      );
      expect(end).toBe("succeeded - 0");
      expect([texts.length, texts[998], texts[999], isCut]).toEqual([1000, "998", "'last'", true]);
      expect(report.items[999]?.main).toBe(true);
    });

    test("a repr without end stops at the time limit, with what was shown before", async () => {
      const { texts, end } = await runCell(
        "class A:\n  def __repr__(self):\n    while True: pass\ndisplay(1)\nA()",
        { job: { timeoutMs: 1500 } },
      );
      expect([texts, end]).toEqual([["1"], "timeout execution_timeout null"]);
    });

    test("a repr of 100 MiB, and a picture over the limit", async () => {
      const { texts, isCut, files, end } = await runCell(`
class A:
    def __repr__(self): return "x" * (100 << 20)
class B:
    def __repr__(self): return "B"
    def _repr_png_(self): return b"p" * (1 << 20)
display(A())
B()`);
      expect(end).toBe("succeeded - 0");
      expect([texts[0]?.length, texts[1], isCut]).toEqual([64 * 1024 + 1, "B", true]);
      expect(files["_results/2.png"]).toHaveLength(1024 * 1024);
    });

    test("8 MiB in all", async () => {
      const { texts, isCut, end } = await runCell(`
class A:
    def __repr__(self): return "A"
    def _repr_html_(self): return "h" * 1_000_000
for _ in range(20): display(A())`);
      expect([texts, isCut, end]).toEqual([Array(20).fill("A"), true, "succeeded - 0"]);
    });

    const forge = (rest: string): string => `
import os
tell = max(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd) and "pipe" in os.readlink("/proc/self/fd/" + fd))
def item(text): return b"y" + len(text).to_bytes(4, "big") + text
display("first")
${rest}
display("last")`;

    test.each([
      ["of 4 GiB", `os.write(tell, b"y" + bytes([255] * 4))`, ["'first'"]],
      ["of an unknown kind", `os.write(tell, b"z" + bytes(4))`, ["'first'"]],
      ["that is not JSON", `os.write(tell, item(b"{"))`, ["'first'", "'last'"]],
      ["that is none", `os.write(tell, item(b'{"main":true,"data":[]}'))`, ["'first'", "'last'"]],
      [
        "with names that are none",
        `os.write(tell, item(b'{"main":true,"data":{"a<b":"c"}}'))`,
        ["'first'", "'last'"],
      ],
      ["of no bytes", `os.write(tell, item(b""))`, ["'first'", "'last'"]],
      ["half of one", `os.write(tell, item(b"x" * 9)[:-5])`, ["'first'"]],
      [
        "like a real one",
        `os.write(tell, item(b'{"main":false,"data":{"text/plain":"mine"}}'))`,
        ["'first'", "mine", "'last'"],
      ],
      ["closed", `os.close(tell)`, ["'first'"]],
      [
        "a flood",
        `for _ in range(3000): os.write(tell, item(b"x" * 100_000))\ntell = 1`,
        ["'first'"],
      ],
    ])("a message: %s", async (_what, code, shown) => {
      const { texts, out, end } = await runCell(forge(code));
      expect([texts, out, end]).toEqual([shown, "", "succeeded - 0"]);
    });
  });
});
