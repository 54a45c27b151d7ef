import { createHash } from "node:crypto";
import { afterAll, describe, expect, test } from "vitest";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { backend, openOn } from "../testing/backend.ts";
import { specWith, testEngine } from "../testing/engine.ts";
import { answering, tools } from "../testing/python-rows.ts";
import { deriveImage, removeImages } from "../testing/raw-engine.ts";
import { openSession, runCode, runIn, type Settings, writeFiles } from "../testing/run-code.ts";
import type { CallAnswer, Program, SandboxJob } from "./job.ts";

describe("inputs", async () => {
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
      const code =
        "import json, sys; print(json.dumps([sys.argv[0], sys.argv[1:], sys.orig_argv]))";
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
});

describe("program", async () => {
  const place = await testEngine();

  const shell = (compile: string[] = [], compileTimeoutMs = 60_000): Program => {
    return { file: "main.sh", compile, compileTimeoutMs, run: ["bash", "/code/main.sh"] };
  };

  function run(code: string, program: Program = shell(), job: Settings["job"] = {}) {
    return runCode(place, code, { job: { ...job, program } });
  }

  test("a program gets stdin and arguments, and its streams, exit status and files are kept", async () => {
    const code = `cat; echo "$# $1"; echo kept >note.txt; echo '{"a": 1}' >/output/result.json; echo no >&2; exit 3`;
    const { out, err, end, files, report } = await run(code, shell(), {
      stdin: "in\n",
      args: ["a b", ""],
    });
    expect({ out, err, end, files }).toEqual({
      out: "in\n2 a b\n",
      err: "no\n",
      end: "failed runtime_error 3",
      files: { "note.txt": "kept\n" },
    });
    expect(report).toMatchObject({
      compiled: null,
      result: { kind: "object", text: '{"a": 1}\n' },
    });
  });

  test("it has the rights of Python code, and no interpreter beside it", async () => {
    const code = `
grep -E "^(Uid|Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp|SigIgn|SigBlk):" /proc/self/status | tr -s '\\t' ' '
cat /proc/self/oom_score_adj; pwd; echo $HOME
ls /proc/self/fd | tr '\\n' ' '; ls -l /code; ls -A /tmp
for each in /proc/[0-9]*; do { [ $each = /proc/1 ] || tr '\\0' ' ' <$each/cmdline | cut -c 1-30; } 2>/dev/null; done; true`;
    const { out, err, end } = await run(code);
    expect({ err, end }).toEqual({ err: "", end: "succeeded - 0" });
    const none = "0000000000000000";
    for (const [name, value] of Object.entries({
      Uid: "1000 1000 1000 1000",
      CapPrm: none,
      CapEff: none,
      CapBnd: none,
      CapAmb: none,
      NoNewPrivs: "1",
      Seccomp: "2",
      SigIgn: none,
      SigBlk: none,
    })) {
      expect(out).toContain(`${name}: ${value}\n`);
    }
    expect(out).toContain("\n1000\n/output\n/tmp\n0 1 2 3 ");
    expect(out).toMatch(/-r--r--r-- 1 root root +\d+ .* main\.sh\n/);
    expect(out).not.toContain("main.py");
  });

  test("one that is not in the image says so", async () => {
    const missing: Program = { ...shell(), run: ["no-such-program"] };
    const { end, err } = await run("", missing);
    expect([end, err]).toEqual([
      "failed runtime_error 127",
      "airlock: no-such-program: the image has no such program\n",
    ]);
  });

  test("signals and the time limit end it as they end Python", async () => {
    expect((await run("kill -SEGV $$")).end).toBe("failed segfault 139");
    const late = await run("echo begun; while :; do :; done", shell(), { timeoutMs: 500 });
    expect([late.end, late.out]).toEqual(["timeout execution_timeout null", "begun\n"]);
  });

  describe("a compiler", () => {
    test("runs first, with a time of its own, and none of its processes lives on", async () => {
      const compile = `echo read; echo warned >&2; (exec >/dev/null 2>&1; while :; do echo >>/tmp/ticks; sleep 0.01; done) &
sleep 1; tr a-z A-Z <"$0" >/tmp/made`;
      const program = {
        ...shell(["sh", "-c", compile, "/code/main.sh"]),
        run: ["cat", "/tmp/made"],
      };
      const { out, end, report } = await run("shout\n", program, { timeoutMs: 900 });
      expect([out, end]).toEqual(["SHOUT\n", "succeeded - 0"]);
      expect(report.compiled).toMatchObject({
        exitStatus: 0,
        stdout: "read\n",
        stderr: "warned\n",
      });
      expect(report.compiled?.wallMs).toBeGreaterThanOrEqual(1000);
      expect(report.executionMs).toBeLessThan(900);
      const count = {
        ...program,
        run: ["sh", "-c", "n=$(wc -l </tmp/ticks); sleep 0.2; test $n = $(wc -l </tmp/ticks)"],
      };
      expect((await run("", count)).end).toBe("succeeded - 0");
    });

    test.each([
      ["that refuses", "echo 'main: no' >&2; exit 1", 60_000, "main: no", { exitStatus: 1 }],
      ["that is killed", "kill -KILL $$", 60_000, /^The compiler was killed/, { exitStatus: null }],
      [
        "over its time",
        "while :; do :; done",
        300,
        /^The compiler was stopped/,
        { timedOut: true },
      ],
      [
        "that is missing",
        null,
        60_000,
        /no-such-compiler: the image has no such program/,
        { exitStatus: 127 },
      ],
    ])(
      "%s ends the job, and the code does not run",
      async (_what, script, limitMs, words, told) => {
        const compile = script === null ? ["no-such-compiler"] : ["sh", "-c", script];
        const { out, end, verdict, report } = await run("echo ran", shell(compile, limitMs));
        expect([out, end]).toEqual(["", "failed compile_error null"]);
        expect(verdict.error?.message).toMatch(words);
        expect(report.compiled).toMatchObject(told);
      },
    );

    test("that prints without end is cut to the beginning", async () => {
      const { report, end } = await run(
        "echo ran",
        shell(["sh", "-c", "yes first | head -c 3000000; exit 1"]),
      );
      expect(end).toBe("failed compile_error null");
      expect(report.compiled?.stdout).toMatch(/^first\n/);
      expect(report.compiled?.stdout).toHaveLength(16 * 1024);
    });

    test("is cancelled with its job", async () => {
      const options = { signal: AbortSignal.timeout(500) };
      const program = shell(["sleep", "60"]);
      const { end } = await runCode(place, "echo ran", { job: { program }, options });
      expect(end).toBe("cancelled cancelled 143");
    });
  });
});

describe("tools", async () => {
  const place = await testEngine();

  type Own = Parameters<typeof answering>[0];

  async function runWith(code: string, job: Partial<SandboxJob> = {}, own?: Own) {
    const { calls, onCall } = answering(own);
    const options = { onCall };
    const run = await runCode(place, code, { job: { results: true, tools, ...job }, options });
    return { ...run, calls };
  }

  test("a call whose arguments are nested too deep for the service raises ToolError", async () => {
    const { out, calls } = await runWith(`
x = []
for _ in range(600): x = [x]
try: add(x)
except ToolError as error: print(error)
print(add(1))`);
    expect(out).toMatch(/^The call is not valid: .* nested too deep\.\n1\n$/);
    expect(calls).toHaveLength(1);
  });

  test("the time for which a call waits is not the code's", async () => {
    const answerLate: Own = (_call, answer) => {
      setTimeout(() => answer({ resultJson: "7" }), 2500);
    };
    const { out, end } = await runWith("print(add(1))", { timeoutMs: 2000 }, answerLate);
    expect([out, end]).toEqual(["7\n", "succeeded - 0"]);
  });

  test("a call without an answer ends the code after tool_timeout, with its name", async () => {
    const job = { timeoutMs: 3000, tools: { ...tools, timeoutMs: 4000 } };
    const { out, verdict, report } = await runWith("print(1)\nnever()", job);
    expect(out).toBe("1\n");
    expect(verdict).toMatchObject({
      status: "timeout",
      error: {
        type: "execution_timeout",
        message: "The code was stopped: no answer to the tool call never came within tool_timeout.",
      },
    });
    expect(report.executionMs).toBeGreaterThan(3000);
  });

  test("code that runs while its call waits has no more time than both", async () => {
    const job = { timeoutMs: 1500, tools: { ...tools, timeoutMs: 1500 } };
    const { end, report } = await runWith(
      "import threading\nthreading.Thread(target=never).start()\nwhile True: pass",
      job,
    );
    expect(end).toBe("timeout execution_timeout null");
    expect(report.executionMs).toBeGreaterThan(2000);
    expect(report.executionMs).toBeLessThan(15_000);
  });

  test("answered calls leave the code its own time", async () => {
    const job = { timeoutMs: 3000, tools: { ...tools, timeoutMs: 60_000 } };
    const { verdict } = await runWith("add(1)\nwhile True: pass", job);
    expect(verdict.error?.message).toContain("at its time limit");
  });

  test("a job is cancelled while a call waits", async () => {
    const stop = new AbortController();
    const { calls, onCall } = answering(() => stop.abort());
    const { end } = await runCode(place, "never()", {
      job: { results: true, tools },
      options: { onCall, signal: stop.signal },
    });
    expect([calls.length, end]).toEqual([1, "cancelled cancelled 143"]);
  });

  test("answers that the code does not read hold up nothing", async () => {
    const large: CallAnswer = { resultJson: `"${"x".repeat(1_000_000)}"` };
    const { out, end } = await runWith(
      `
import threading, time
threads = [threading.Thread(target=echo, daemon=True) for _ in range(20)]
import os, signal
parent = os.getpid()
for each in threads: each.start()
while sum(each.is_alive() for each in threads) > 19: time.sleep(0.01)
child = os.fork()
if child == 0:
    os.kill(parent, signal.SIGSTOP)
    for n in range(20): print(n, flush=True); time.sleep(0.01)
    os.kill(parent, signal.SIGCONT)
    os._exit(0)
os.waitpid(child, 0)
for each in threads: each.join()
print("done")`,
      {},
      (_call, answer) => answer(large),
    );
    expect([out.endsWith("19\ndone\n"), end]).toEqual([true, "succeeded - 0"]);
  });
});

describe("who the code is", async () => {
  const place = await testEngine();
  const images: string[] = [];
  afterAll(() => removeImages(...images));

  const asked = `
import getpass, grp, locale, os, pwd
def name(find, field):
    try: return getattr(find(1000), field)
    except KeyError: return None
names = [getpass.getuser(), name(pwd.getpwuid, "pw_name"), name(grp.getgrgid, "gr_name"), os.path.expanduser("~")]
names += map(os.path.realpath, ("/mnt/data", "/home/user"))
print(names, locale.setlocale(locale.LC_ALL, ""), flush=True)`;
  const shell = "whoami; id; echo $USER $LOGNAME $HOME; locale | grep -E 'LANG=|LC_ALL'";
  const user = `['user', 'user', 'user', '/tmp', '/output', '/output'] C.UTF-8
user
uid=1000(user) gid=1000(user) groups=1000(user)
user user /tmp
LANG=C.UTF-8
LC_ALL=
`;
  const code = `${asked}\nimport subprocess\nsubprocess.run(["sh", "-c", ${JSON.stringify(shell)}])`;
  const runtimes = backend === "engine" ? ["runc", "runsc"] : ["runc"];
  test.each(runtimes)(
    "a job, a session and a program are `user` under %s, whose text is UTF-8",
    async (runtime) => {
      // The image sets LANG.
      const spec = { runtime: backend === "engine" ? runtime : null, env: { LANG: "" } };
      expect(await runCode(place, code, { spec })).toMatchObject({ err: "", out: user });
      const { call } = await openSession(place, spec);
      expect(await call(code)).toMatchObject({ err: "", out: user });
      const program: Program = {
        file: "main.sh",
        compile: [],
        compileTimeoutMs: 0,
        run: ["sh", "/code/main.sh"],
      };
      const job = { program };
      const script = `python3 -c '${asked}'\n${shell}`;
      expect(await runCode(place, script, { spec, job })).toMatchObject({ err: "", out: user });
    },
  );

  test.each([
    [{ LANG: "C", USER: "ada", LOGNAME: "ada" }, "ada ada C "],
    [{ LANG: "", LC_ALL: "C" }, "user user  C"],
  ])("what the job type says stays: %j", async (env, out) => {
    const script = "import os; os.system('echo $USER $LOGNAME \"$LANG\" $LC_ALL')";
    const said = await runCode(place, script, { spec: { env } });
    expect(said.out.trim()).toBe(out.trim());
  });

  test.each([
    [
      "names in the image stay",
      "echo ada:x:1000:1000::/home/ada:/bin/sh >>/etc/passwd; mkdir /home/user; printf staff:x:5: >/etc/group",
      "['user', 'ada', 'user', '/tmp', '/output', '/home/user']",
    ],
    [
      "files that an image lacks are made",
      "rm /etc/passwd; echo user:x:7: >/etc/group",
      "['user', 'user', None, '/tmp', '/output', '/output']",
    ],
    [
      "links stay",
      "cp /etc/passwd /accounts; ln -sf /accounts /etc/passwd; ln -sf /nowhere /etc/group",
      "['user', None, None, '/tmp', '/output', '/output']",
    ],
  ])("%s", async (_what, script, names) => {
    const image = await deriveImage(place.image, script);
    images.push(image);
    const { out, err } = await runCode(place, asked, { spec: { image } });
    expect({ out, err }).toEqual({ out: `${names} C.UTF-8\n`, err: "" });
  });
});
