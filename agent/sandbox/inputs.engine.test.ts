import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { backend, openOn } from "./testing/backend.ts";
import { testEngine } from "./testing/engine.ts";
import { specWith } from "./testing/report.ts";
import { runCode, runIn, type Settings, writeFiles } from "./testing/run-code.ts";
import type { SandboxJob } from "./job.ts";

const place = await testEngine();

/** What the code prints. The code must succeed. */
async function printed(
  code: string,
  job: Partial<SandboxJob> = {},
  inputFiles: Settings["inputFiles"] = {},
): Promise<string> {
  const { out, err, end } = await runCode(place, code, { job, inputFiles });
  expect({ err, end }).toEqual({ err: "", end: "succeeded - 0" });
  return out;
}

const mebibyte = 1024 ** 2;

/** Python that does something which the kernel may refuse, and says "done" or the error's name. */
const tried = `def tried(what, *args):
    try:
        what(*args)
        return "done"
    except OSError as error:
        return type(error).__name__`;

describe("stdin", () => {
  test("is what the job gives, byte for byte", async () => {
    const stdin = "\u{feff}tea\r\n\0\u00e4\u{1f600}\n";
    const code = "import sys; print(sys.stdin.buffer.read().hex())";
    expect(await printed(code, { stdin })).toBe(`${Buffer.from(stdin).toString("hex")}\n`);
  });

  test("is at its end without one, and is then the null device", async () => {
    const code = `
import os, sys
print(repr(sys.stdin.read()), os.readlink("/proc/self/fd/0"), sorted(os.listdir("/input")))`;
    const told = "'' /dev/null ['data.json']\n";
    expect(await printed(code)).toBe(told);
    expect(await printed(code, { stdin: "", args: [] })).toBe(told);
  });

  test.each([
    ["does not read it", "print('done')", "done\n"],
    ["closes it", "import sys; sys.stdin.close(); print('done')", "done\n"],
    ["reads half of it", "import os; print(len(os.read(0, 524288)))", "524288\n"],
    [
      "leaves it to the processes that it starts",
      "import subprocess; print(subprocess.run(['wc', '-c'], stdout=-1).stdout.decode().strip())",
      `${64 * mebibyte}\n`,
    ],
  ])("may be larger than a pipe for code that %s", async (_what, code, out) => {
    expect(await printed(code, { stdin: "x".repeat(64 * mebibyte) })).toBe(out);
  });

  test("and arguments cannot be written, replaced or removed", async () => {
    const code = `
import os
${tried}
print(tried(os.write, 0, b"x"))
for path in ("/input/_stdin", "/input/_args", "/proc/self/fd/0"):
    print(tried(open, path, "r+"), tried(os.unlink, path), tried(os.truncate, path, 0), tried(os.chmod, path, 0o777))
    print(tried(os.rename, path, "/tmp/x"), tried(os.rename, "/output", path), tried(os.link, path, "/tmp/y"))`;
    const out = await printed(code, { stdin: "x", args: ["y"] });
    expect(out).not.toContain("done");
    expect(out.trim().split(/\s+/)).toHaveLength(22);
  });
});

/** Tries to change files and folders under /input, and prints the outcome of each try in one word. */
const attempts = `
import os, shutil, sys
${tried}
for path in sys.argv[1:]:
    print(tried(open, path, "r+"), tried(open, path, "a"), tried(os.truncate, path, 0), tried(os.unlink, path))
    print(tried(os.chmod, path, 0o777), tried(os.utime, path, (0, 0)), tried(os.rename, path, "/tmp/x"))
    print(tried(os.symlink, "/etc", path + "x"), tried(os.mkdir, os.path.dirname(path) + "/new"))
    print(tried(os.replace, "/output", path), tried(os.chown, path, 1000, 1000), tried(os.setxattr, path, "user.a", b"b"))
    print(tried(shutil.rmtree, os.path.dirname(path)), tried(os.rename, os.path.dirname(path), "/tmp/y"))`;

describe("files", () => {
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, n) => (n * 7) % 256));
  const contents = { "a.bin": bytes, "b/c/\u00e4 d.txt": "milk and tea\n", empty: "" };

  test("are at /input with their names and bytes, beside the input", async () => {
    const code = `
import glob, hashlib, os
for name in sorted(glob.glob("/input/**", recursive=True)):
    if os.path.isfile(name):
        print(ascii(name), hashlib.sha256(open(name, "rb").read()).hexdigest()[:8], os.path.islink(name))`;
    const hash = (content: string | Uint8Array) =>
      createHash("sha256").update(content).digest("hex").slice(0, 8);
    expect(await printed(code, {}, contents)).toBe(
      [
        `'/input/a.bin' ${hash(bytes)} False`,
        `'/input/b/c/\\xe4 d.txt' ${hash("milk and tea\n")} False`,
        `'/input/data.json' ${hash("{}")} False`,
        `'/input/empty' ${hash("")} False`,
        "",
      ].join("\n"),
    );
  });

  test("can be mapped into memory and read by the processes that the code starts", async () => {
    const code = `
import mmap, subprocess
with open("/input/a.bin", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
    print(len(view), view[7])
print(subprocess.run(["cat", "/input/b/c/\u00e4 d.txt"], stdout=-1).stdout.decode(), end="")`;
    expect(await printed(code, {}, contents)).toBe("300000 49\nmilk and tea\n");
  });

  test("cannot be changed, replaced or removed by the code", async () => {
    const args = ["/input/a.bin", "/input/b/c/\u00e4 d.txt"];
    const out = await printed(attempts, { args }, contents);
    expect(out).not.toContain("done");
    expect(out.trim().split(/\s+/)).toHaveLength(28);
  });

  test("are mounted where jobs are forked, and copied into containers", async () => {
    const code =
      "import os; print(os.stat('/input/a.bin').st_dev == os.stat('/input/data.json').st_dev)";
    const isCopied = backend === "zygote" ? "False" : "True";
    expect(await printed(code, {}, contents)).toBe(`${isCopied}\n`);
  });
});

describe("args", () => {
  test("are sys.argv behind the name of the script, as many as 128 KiB hold", async () => {
    const args = ["-x", "", "\u00e4 \u{1f600}", "a\nb", "z".repeat(130_000)];
    const code = "import json, sys; print(json.dumps([sys.argv[0], sys.argv[1:], sys.orig_argv]))";
    expect(JSON.parse(await printed(code, { args }))).toEqual([
      "/code/main.py",
      args,
      ["python3", "/code/main.py", ...args],
    ]);
    const empty = Array.from({ length: 131_072 }, () => "");
    expect(await printed("import sys; print(len(sys.argv))", { args: empty })).toBe("131073\n");
  });
});

test("of two files with one name, the code finds the last", async () => {
  const folder = tempFolder();
  const signal = AbortSignal.timeout(60_000);
  const sandbox = await openOn(place, specWith({ image: place.image }), signal);
  try {
    const [first, second] = writeFiles(folder, { a: "first", b: "second" });
    await sandbox.giveFiles([first!, { ...second!, name: "a" }], signal);
    const { stdout } = await runIn(sandbox, "print(open('/input/a').read())");
    expect(Buffer.from(stdout).toString()).toBe("second\n");
  } finally {
    await sandbox.close();
  }
});
