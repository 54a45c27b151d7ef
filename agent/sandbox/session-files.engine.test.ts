import { describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/temp-folder.ts";
import { describeLeftOut } from "./output/classify.ts";
import type { CallFile } from "./job.ts";
import { testEngine } from "./testing/engine.ts";
import { openSession } from "./testing/open-session.ts";
import { writeFiles } from "./testing/run-code.ts";

const place = await testEngine();

function filesTo(to: CallFile["to"], contents: Record<string, string>): CallFile[] {
  return writeFiles(tempFolder(), contents).map((file) => ({ ...file, to }));
}

describe("what a call has written", () => {
  test("a file is an artifact of the calls that changed it", async () => {
    const { call } = await openSession(place);
    const first = await call(
      "import os\nos.mkdir('sub')\nopen('sub/a', 'w').write('1'); open('b', 'w').write('2');",
    );
    expect(first.files).toEqual({ "sub/a": "1", b: "2" });
    expect((await call("os.utime('b', (1, 1))\nopen('sub/a', 'a').write('3');")).files).toEqual({
      b: "2",
      "sub/a": "13",
    });
    expect((await call("1")).files).toEqual({});
    expect((await call("os.rename('b', 'c')")).files).toEqual({ c: "2" });
  });

  test("a result belongs to the call that wrote it", async () => {
    const { call } = await openSession(place);
    for (let n = 0; n < 20; n++) {
      const text = n % 2 ? `{"a":${n}}` : "[]";
      const { report } = await call(`open('result.json', 'w').write('${text}'); None`);
      expect(report.result).toMatchObject(n % 2 ? { kind: "object", text } : { kind: "invalid" });
      const next = await call("1");
      expect([next.report.result, next.files, next.end]).toEqual([
        { kind: "absent" },
        {},
        "succeeded - 0",
      ]);
    }
  });

  test("what is too deep or too much to be searched fails no call that left it there", async () => {
    const { call } = await openSession(place);
    const words = "not searched, because it is nested too deep or behind 20,000 other entries";
    await call(
      "import os, time\nos.makedirs('d/' * 40)\nfor n in range(19_000): os.mkfifo(f'f{n}')\ntime.sleep(0.05)",
    );
    const deep = await call("1");
    expect(deep.end).toBe("succeeded - 0");
    expect(describeLeftOut(deep.report)).toContain(`${words}: 1 (d/d/`);
    await call("for n in range(1000): os.mkfifo(f'g{n}')\ntime.sleep(0.05)");
    const many = await call("1");
    expect(many.end).toBe("succeeded - 0");
    expect(describeLeftOut(many.report)).toContain(words);
  });

  test("modes of files and folders stay as the code has set them", async () => {
    const { call } = await openSession(place);
    const made = await call(
      "import os\nos.mkdir('d', 0o300)\nopen('f', 'w').close()\nos.chmod('f', 0)",
    );
    expect(made.files).toEqual({});
    expect(describeLeftOut(made.report)).toBe("Left out of the artifacts: unreadable: 2 (d/, f).");
    expect((await call("[oct(os.stat(n).st_mode & 0o777) for n in ('d', 'f')]")).shown).toEqual([
      "['0o300', '0o0']",
    ]);
  });
});

describe("what a call brings", () => {
  test("files in /input are read-only and stay; a later one of the same name replaces it", async () => {
    const { call } = await openSession(place);
    const read = "import os\n[open('/input/' + n).read() for n in ('a', 'd/b')]";
    expect((await call(read, { files: filesTo("input", { a: "1", "d/b": "2" }) })).shown).toEqual([
      "['1', '2']",
    ]);
    expect((await call(read, { files: filesTo("input", { a: "3" }) })).shown).toEqual([
      "['3', '2']",
    ]);
    expect((await call("open('/input/a', 'a')")).end).toBe("failed permission 1");
  });

  test("files in /output can be changed, also without code", async () => {
    const { call } = await openSession(place);
    const put = await call("", {
      files: filesTo("work", { "d/e/a": "1", b: "x".repeat(200_000) }),
    });
    expect(put).toMatchObject({ end: "succeeded - 0", out: "", err: "" });
    const changed = await call(
      "f = open('d/e/a', 'a'); f.write('2'); f.close(); import os\n(os.getuid(), os.stat('b').st_uid, len(open('b').read()))",
    );
    expect(changed.shown).toEqual(["(1000, 1000, 200000)"]);
    expect(changed.files["d/e/a"]).toBe("12");
    await call("os.remove('b'); os.symlink('/etc/passwd', 'b')");
    expect(
      (await call("open('b').read()", { files: filesTo("work", { b: "new" }) })).shown,
    ).toEqual(["'new'"]);
  });

  test.each([
    [
      "a folder is in its place",
      "os.makedirs('a/b')",
      "a",
      "failed file_error 1",
      "Is a directory",
    ],
    [
      "a file is in the way",
      "open('a', 'w').close()",
      "a/b",
      "failed file_error 1",
      "Not a directory",
    ],
    [
      "a link is in the way",
      "os.symlink('/tmp', 'a')",
      "a/b",
      "failed file_error 1",
      "Not a directory",
    ],
    ["a FIFO is in the way", "os.mkfifo('a')", "a/b", "failed file_error 1", "Not a directory"],
  ])(
    "a file that cannot be written, because %s, fails its call",
    async (_, code, name, end, words) => {
      const { call } = await openSession(place);
      await call(`import os\n${code}`);
      const failed = await call("ran = True", { files: filesTo("work", { [name]: "x" }) });
      expect(failed.message).toContain(`/output/${name} cannot be written: ${words}`);
      expect(failed.end).toBe(end);
      expect((await call("ran")).end).toBe("failed name_error 1");
      expect((await call("os.listdir('/tmp')")).shown).toEqual(["[]"]);
    },
  );
});

describe("what a call fetches", () => {
  test("alone, it leaves what has changed to the next call", async () => {
    const { call } = await openSession(place);
    await call("1");
    const run = ["sh", "-c", "echo new > a; ls"];
    const program = { file: "main.sh", compile: [], compileTimeoutMs: 0, run };
    expect(await call("", { program, onlyFetches: true })).toMatchObject({ out: "a\n", files: {} });
    expect((await call("1")).files).toEqual({ a: "new\n" });
  });

  test("files of /output, /tmp and /input, also without code and after the interpreter's end", async () => {
    const { call } = await openSession(place);
    await call(
      "import os, time\nos.mkdir('d')\nopen('d/a', 'w').write('1'); open('/tmp/t', 'w').write('2')",
      {
        files: filesTo("input", { i: "3" }),
      },
    );
    await call("time.sleep(0.05)");
    await call("os._exit(1)");
    const { end, files } = await call("", { fetch: ["d/a", "/tmp/t", "/input/i", "/output/d/a"] });
    expect({ end, files }).toEqual({
      end: "succeeded - 0",
      files: {
        "_fetched/d/a": "1",
        "_fetched/tmp/t": "2",
        "_fetched/input/i": "3",
        "_fetched/output/d/a": "1",
      },
    });
  });

  test("a file that is missing or not regular is named and left out", async () => {
    const { call } = await openSession(place);
    await call(
      "import os\nos.mkdir('d'); os.mkfifo('fifo'); os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'd/etc')",
    );
    const fetch = [
      "no",
      "d",
      "fifo",
      "link",
      "d/etc/passwd",
      "/etc/passwd",
      "/proc/1/environ",
      "/code/main.py",
      "../etc/passwd",
      "/tmp/../etc/passwd",
      "/output",
    ];
    const { files, report, end } = await call("", { fetch });
    expect({ files, end }).toEqual({ files: {}, end: "succeeded - 0" });
    expect(Object.fromEntries(report.skipped.map(({ reason, count }) => [reason, count]))).toEqual({
      missing: 2,
      not_a_regular_file: 3,
      unsafe_name: 6,
    });
  });
});
