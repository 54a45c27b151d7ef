import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { needsThroughout } from "../../scripts/testing/needs.ts";
import { openSession } from "./session/session.ts";
import { startOnHost } from "./testing/host-link.ts";
import { hostPython } from "./testing/find-python.ts";
import type { RunReport } from "./report.ts";

const spoolRoot = mkdtempSync(join(tmpdir(), "airlock-collect-"));
afterAll(() => rmSync(spoolRoot, { recursive: true }));

needsThroughout("root", "ip");
const python = hostPython();

/** The report of code that leaves things in /output, its working directory. */
async function leave(code: string, artifactBytes = 1_000_000): Promise<RunReport> {
  const link = startOnHost(python);
  try {
    const session = await openSession(link, AbortSignal.timeout(30_000));
    const report = await session.run(
      {
        code: `import os, socket, sys\n${code}`,
        inputJson: "{}",
        timeoutMs: 60_000,
        caps: { streamBytes: 10_000, artifactBytes },
      },
      { signal: new AbortController().signal, spoolDir: mkdtempSync(join(spoolRoot, "run-")) },
    );
    expect(Buffer.from(report.stderr).toString()).toBe("");
    expect(report).toMatchObject({ ending: "exited", exitStatus: 0, lostReason: null });
    return report;
  } finally {
    link.destroy();
  }
}

function names({ artifacts }: RunReport): string[] {
  return artifacts.map(({ name }) => name);
}

test("files in folders are collected in order, byte for byte", async () => {
  const report = await leave(`
os.makedirs("sub/deeper"); os.mkdir("empty")
open("sub/deeper/x.bin", "wb").write(bytes(range(256)) * 1000)
open("b", "w").close(); open("a ü", "w").write("text")`);
  expect(names(report)).toEqual(["a ü", "b", "sub/deeper/x.bin"]);
  const [, , big] = report.artifacts;
  expect(big).toMatchObject({ sizeBytes: 256_000 });
  expect(readFileSync(big!.path)).toEqual(
    Buffer.alloc(
      256_000,
      Uint8Array.from({ length: 256 }, (_, i) => i),
    ),
  );
  expect(report.skipped).toEqual([]);
});

test("links, pipes, sockets and hard links are skipped, whatever they point to", async () => {
  const report = await leave(`
for i, target in enumerate(["/etc/shadow", "/proc/1/environ", "/", "fine", "../code/main.py"]):
    os.symlink(target, "link%d" % i)
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open("one", "w").write("x"); os.link("one", "two")
open("fine", "w").write("y")`);
  expect(names(report)).toEqual(["fine"]);
  expect(report.skipped).toEqual([
    {
      reason: "not_a_regular_file",
      count: 7,
      names: ["link0", "link1", "link2", "link3", "link4"],
    },
    { reason: "hard_link", count: 2, names: ["one", "two"] },
  ]);
});

test("a sparse file of a terabyte costs nothing", async () => {
  const report = await leave(`
for i in range(3): os.truncate(os.open("sparse%d" % i, os.O_CREAT | os.O_WRONLY), 1 << 40)
open("small", "w").write("x")`);
  expect(names(report)).toEqual(["small"]);
  expect(report.skipped).toMatchObject([{ reason: "too_many_bytes", count: 3 }]);
});

test("the files that fit are kept when there are too many bytes", async () => {
  const report = await leave(
    `for name, size in ("a", 60), ("b", 60), ("c", 40): open(name, "w").write("x" * size)`,
    100,
  );
  expect(names(report)).toEqual(["a", "c"]);
  expect(report.skipped).toEqual([{ reason: "too_many_bytes", count: 1, names: ["b"] }]);
});

test("the first thousand are kept when there are too many files", async () => {
  const report = await leave(`for i in range(1200): open("f%05d" % i, "w").close()`);
  expect(report.artifacts).toHaveLength(1000);
  expect(names(report).at(-1)).toBe("f00999");
  expect(report.skipped).toMatchObject([{ reason: "too_many_files", count: 200 }]);
});

test("a hundred thousand files are not listed completely", async () => {
  const report = await leave(`
for i in range(100_000): os.close(os.open("f%d" % i, os.O_CREAT))
open("result.json", "w").write('{"a": 1}')`);
  expect(report.artifacts.length).toBeGreaterThan(0);
  expect(report.skipped.map(({ reason }) => reason)).toEqual(["too_many_files"]);
  expect(report.result).toEqual({ kind: "object", text: '{"a": 1}' });
});

test("a tree that is three thousand folders deep is followed to the thirty-second", async () => {
  const report = await leave(`
for i in range(3000):
    open("f", "w").close()
    os.mkdir("d"); os.chdir("d")`);
  expect(names(report)).toContain(`${"d/".repeat(31)}f`);
  expect(report.artifacts).toHaveLength(32);
  expect(report.skipped).toMatchObject([{ reason: "too_deep", count: 1 }]);
});

test("names that would harm a header, a terminal or another system are skipped", async () => {
  const report = await leave(String.raw`
bad = ["a\r\nb", "\x1b[31m", "back\\slash", "..\\x", "\u202egnp", "\u2066x", "\x7f", "\x85", "_code.py"]
good = ["quote\"s'", "%2e%2e", "..x", "x" * 255, "größe", "-rf", "a;b", "😀", " "]
for name in bad + good: open(name, "w").close()
open(b"latin-\xe4", "w").close()
os.mkdir("bad\nfolder"); open("bad\nfolder/x", "w").close()`);
  expect(names(report).sort()).toEqual(
    ["quote\"s'", "%2e%2e", "..x", "x".repeat(255), "größe", "-rf", "a;b", "😀", " "].sort(),
  );
  expect(report.skipped).toMatchObject([{ reason: "unsafe_name", count: 11 }]);
  for (const name of report.skipped[0]!.names) expect(name).toMatch(/^[ -~]*$/);
});

test("a path of more than a thousand bytes is skipped", async () => {
  const report = await leave(`
os.makedirs("/".join(["d" * 200] * 5))
os.chdir("/".join(["d" * 200] * 5))
open("x" * 19, "w").close(); open("x" * 20, "w").close()`);
  expect(names(report)).toEqual([`${"d".repeat(200)}/`.repeat(5) + "x".repeat(19)]);
  expect(report.skipped).toMatchObject([{ reason: "name_too_long", count: 1 }]);
});

test("files that the code made unreadable are still read", async () => {
  const report = await leave(`
os.mkdir("sub")
open("sub/x", "w").write("1"); open("y", "w").write("2"); open("result.json", "w").write("{}")
os.chmod("sub/x", 0); os.chmod("sub", 0); os.chmod("y", 0o200); os.chmod("result.json", 0)`);
  expect(report.artifacts.map(({ path }) => readFileSync(path, "utf8"))).toEqual(["1", "2"]);
  expect(report).toMatchObject({ skipped: [], result: { kind: "object" } });
});

test("/output cannot be renamed, removed or closed", async () => {
  const report = await leave(`
os.chdir("/")
for act in (os.rmdir, lambda path: os.rename(path, "/moved"), lambda path: os.chmod(path, 0)):
    try: act("/output"); print("done")
    except OSError as e: pass
open("/output/x", "w").close()`);
  expect(names(report)).toEqual(["x"]);
});

const result = (bytes: string) => `open("result.json", "wb").write(${bytes})`;

test.each([
  ["a link", `os.symlink("/etc/passwd", "result.json")`, "it is not a regular file"],
  ["a pipe", `os.mkfifo("result.json")`, "it is not a regular file"],
  [
    "a folder",
    `os.mkdir("result.json"); open("result.json/x", "w").close()`,
    "it is not a regular file",
  ],
  [
    "a hard link",
    `open("x", "w").close(); os.link("x", "result.json")`,
    "it has more than one hard link",
  ],
])("a result.json that is %s is not a result", async (_what, code, problem) => {
  const report = await leave(code);
  expect(report.result).toEqual({ kind: "invalid", problem });
  expect(names(report)).not.toContain("result.json");
});

test.each([
  ["truncated", result(`b'{"a": 1'`), "it is not JSON"],
  [
    "NaN",
    `import json; json.dump({"a": float("nan")}, open("result.json", "w"))`,
    "it is not JSON",
  ],
  ["a list", result(`b"[1, 2]"`), "it holds an array, not an object"],
  ["very deep", result(`b"[" * 100_000`), "it is nested 100000 deep"],
  ["empty", result(`b""`), "it is not JSON"],
])("a result.json that is %s is kept unchanged", async (_what, code, problem) => {
  const report = await leave(code);
  expect(report.result).toEqual({
    kind: "invalid",
    problem: expect.stringContaining(problem) as string,
  });
  expect(names(report)).toEqual(["result.json"]);
});

test("a result.json over its cap is kept as an artifact if there is room", async () => {
  const code = `open("result.json", "w").write('{"a": "' + "x" * 11_000_000 + '"}')`;
  const problem = "it is larger than 10485760 bytes";
  const roomy = await leave(code, 20_000_000);
  expect(roomy.result).toEqual({ kind: "invalid", problem });
  expect(names(roomy)).toEqual(["result.json"]);
  const tight = await leave(code);
  expect(tight.result).toEqual({ kind: "invalid", problem });
  expect(tight.skipped).toMatchObject([{ reason: "too_many_bytes", names: ["result.json"] }]);
});

test("a result.json does not count against the artifacts", async () => {
  const report = await leave(
    `open("result.json", "w").write('{"a": "' + "x" * 1000 + '"}'); open("a", "w").write("x" * 100)`,
    100,
  );
  expect(report).toMatchObject({ result: { kind: "object" }, skipped: [] });
  expect(names(report)).toEqual(["a"]);
});
