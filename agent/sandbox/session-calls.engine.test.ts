import { describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { testEngine } from "../testing/engine.ts";
import { answering, tools } from "../testing/python-rows.ts";
import { openSession, writeFiles } from "../testing/run-code.ts";
import type { CallAnswer, CallFile } from "./job.ts";
import { describeLeftOut } from "./verdict.ts";

describe("session files", async () => {
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
      expect(describeLeftOut(deep.report, { error: null })).toContain(`${words}: 1 (d/d/`);
      await call("for n in range(1000): os.mkfifo(f'g{n}')\ntime.sleep(0.05)");
      const many = await call("1");
      expect(many.end).toBe("succeeded - 0");
      expect(describeLeftOut(many.report, { error: null })).toContain(words);
    });

    test("modes of files and folders stay as the code has set them", async () => {
      const { call } = await openSession(place);
      const made = await call(
        "import os\nos.mkdir('d', 0o300)\nopen('f', 'w').close()\nos.chmod('f', 0)",
      );
      expect(made.files).toEqual({});
      expect(describeLeftOut(made.report, { error: null })).toBe(
        "Left out of the artifacts: unreadable: 2 (d/, f).",
      );
      expect((await call("[oct(os.stat(n).st_mode & 0o777) for n in ('d', 'f')]")).shown).toEqual([
        "['0o300', '0o0']",
      ]);
    });
  });

  describe("what a call brings", () => {
    test("files in /input are read-only and stay; a later one of the same name replaces it", async () => {
      const { call } = await openSession(place);
      const read = "import os\n[open('/input/' + n).read() for n in ('a', 'd/b')]";
      expect((await call(read, { files: filesTo("input", { a: "1", "d/b": "2" }) })).shown).toEqual(
        ["['1', '2']"],
      );
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
      expect(await call("", { program, onlyFetches: true })).toMatchObject({
        out: "a\n",
        files: {},
      });
      expect((await call("1")).files).toEqual({ a: "new\n" });
    });

    test("files of /output, /tmp and /input, also without code and after the interpreter's end", async () => {
      const { call } = await openSession(place);
      await call(
        "import os, time\nos.mkdir('d')\nopen('d/a', 'w').write('1'); open('/tmp/t', 'w').write('2')",
        { files: filesTo("input", { i: "3" }) },
      );
      await call("time.sleep(0.05)");
      await call("os._exit(1)");
      const { end, files } = await call("", {
        fetch: ["d/a", "/tmp/t", "/input/i", "/output/d/a"],
      });
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
      expect(
        Object.fromEntries(report.skipped.map(({ reason, count }) => [reason, count])),
      ).toEqual({ missing: 2, not_a_regular_file: 3, unsafe_name: 6 });
    });
  });
});

describe("session tools", async () => {
  const place = await testEngine();

  type Own = Parameters<typeof answering>[0];

  /** A session, and a caller that answers the calls of those cells that bring tools. */
  async function open(own?: Own) {
    const { call } = await openSession(place);
    const { calls, onCall } = answering(own);
    return {
      call,
      calls,
      callWith: (code: string, more: Parameters<typeof call>[1] = {}, signal?: AbortSignal) =>
        call(code, { tools, ...more }, { onCall, ...(signal && { signal }) }),
    };
  }

  const works = { end: "succeeded - 0", err: "" };

  describe("a call calls functions of the caller", () => {
    test("three times, in order with its output; so do the next call and one of another context", async () => {
      const { callWith, calls } = await open();
      const first = await callWith("print(add(1, 2), add(3))\nx = await later(4)\nx");
      expect(first).toMatchObject({ ...works, out: "3 3\n", shown: ["{'n': 4}"] });
      expect(calls.map(({ number, stdoutAt }) => [number, stdoutAt])).toEqual([
        [1, 0],
        [2, 0],
        [3, 4],
      ]);
      expect(await callWith("add(x['n'], 1)")).toMatchObject({ ...works, shown: ["5"] });
      const other = { context: "other", contexts: ["other"] };
      expect(await callWith("add(6)", other)).toMatchObject({ ...works, shown: ["6"] });
    });

    test("its names go with it, unless the code has bound them anew; what they hid is there again", async () => {
      const { call, callWith } = await open();
      await call("def echo(): return 'own'\nfail = 1");
      const used = await callWith(
        "def later(): return 'bound'\ndel never\nfail = 2\nkept = add\nadd(1)",
      );
      expect(used).toMatchObject({ ...works, shown: ["1"] });
      const next = await call(
        "[name for name in ('add', 'odd', 'never', 'ToolError') if name in globals()], echo(), later(), fail",
      );
      expect(next).toMatchObject({ ...works, shown: ["(['ToolError'], 'own', 'bound', 2)"] });
      const late = await call("try: kept(1)\nexcept ToolError as error: print(error)");
      expect(late.out).toBe("The call of the session that brought this tool has ended.\n");
      expect(await callWith("add(2), 'kept' in globals()")).toMatchObject({
        ...works,
        shown: ["(2, True)"],
      });
    });

    test("a function that was kept leaves no descriptor when it is gone", async () => {
      const { call, callWith } = await open();
      const count = "import os\nlen(os.listdir('/proc/self/fd'))";
      const before = await call(count);
      for (let n = 0; n < 5; n++) await callWith(`kept = add\nadd(${n})`);
      expect((await call(`del kept\n${count}`)).shown).toEqual(before.shown);
    });

    test("a call without tools sees nothing of them", async () => {
      const { call, callWith } = await open();
      await callWith("add(1)");
      const looks = await call(
        "import os\n[os.path.exists(p) for p in ('/code/.answers', '/input/_tools')]",
      );
      expect(looks).toMatchObject({ ...works, shown: ["[False, False]"] });
    });
  });

  describe("a tool of an earlier call", () => {
    test("in a thread that waits when the call ends, and in one that calls later, raises ToolError", async () => {
      const { call, callWith, calls } = await open();
      const begun = await callWith(`
import threading
said, go = [], threading.Event()
def wait(call):
    try: call()
    except ToolError as error: said.append(str(error))
def later_on(add=add): go.wait(); add(1)
threads = [threading.Thread(target=wait, args=(each,)) for each in (never, never, later_on)]
for each in threads: each.start()
add(1)`);
      expect(begun).toMatchObject({ ...works, shown: ["1"] });
      const ended = await callWith(
        "go.set()\nfor each in threads: each.join()\nprint(add(5), len(said), *set(said), sep='\\n')",
      );
      expect(ended).toMatchObject({
        ...works,
        out: "5\n3\nThe call of the session that brought this tool has ended.\n",
      });
      expect(calls.filter(({ name }) => name === "add")).toHaveLength(2);
      expect(await call("1")).toMatchObject({ ...works, shown: ["1"] });
    });

    test("in a task that the code left in its event loop raises it there", async () => {
      const { call, callWith } = await open(() => {});
      await callWith(
        "import asyncio\ntask = asyncio.ensure_future(later(1))\nawait asyncio.sleep(0)",
      );
      const next = await call("try: await task\nexcept ToolError as error: print(error)");
      expect(next).toMatchObject({
        ...works,
        out: "The call of the session that brought this tool has ended.\n",
      });
    });

    test("gets no answer that comes late, and the next call gets its own alone", async () => {
      const late: ((given: CallAnswer) => void)[] = [];
      const { callWith } = await open(({ name }, answer) => {
        if (name === "never") late.push(answer);
        else answer({ resultJson: '"own"' });
      });
      await callWith(`
import threading
def wait():
    try: never()
    except ToolError: pass
threading.Thread(target=wait).start()
add(1)`);
      for (const answer of late) answer({ resultJson: '"late"' });
      expect(await callWith("add(1)")).toMatchObject({ ...works, shown: ["'own'"] });
    });
  });

  describe("the end of a call that waits", () => {
    test("an interrupt, a timeout: the session stays, and the next call works", async () => {
      const stop = new AbortController();
      const { callWith } = await open(({ name, arguments: given }, answer) => {
        if (name === "echo") stop.abort();
        if (name === "add") answer({ resultJson: String(given["a"]) });
      });
      const cut = await callWith("x = 1\necho()", {}, stop.signal);
      expect(cut.end).toBe("cancelled cancelled 143");
      expect(await callWith("add(2), x")).toMatchObject({ ...works, shown: ["(2, 1)"] });
      const slow = { timeoutMs: 500, tools: { ...tools, timeoutMs: 500 } };
      const unanswered = await callWith("never()", slow);
      expect(unanswered).toMatchObject({
        end: "timeout execution_timeout null",
        message: "The code was stopped: no answer to the tool call never came within tool_timeout.",
      });
      expect(await callWith("add(3), x")).toMatchObject({ ...works, shown: ["(3, 1)"] });
    });

    test("the time for which it waits is not the code's", async () => {
      const { callWith } = await open((_call, answer) => {
        setTimeout(() => answer({ resultJson: "7" }), 2500);
      });
      const job = { timeoutMs: 2000 };
      expect(await callWith("add(1)", job)).toMatchObject({ ...works, shown: ["7"] });
    });

    test("the interpreter is killed: a restart brings tools anew", async () => {
      const { callWith } = await open();
      const killed = await callWith("import os\nadd(1)\nos.kill(os.getpid(), 9)");
      expect(killed.end).toBe("failed killed 137");
      expect(await callWith("add(2)", { restart: true })).toMatchObject({ ...works, shown: ["2"] });
    });
  });
});
