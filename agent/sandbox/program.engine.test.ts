import { describe, expect, test } from "vitest";
import type { Program } from "./job.ts";
import { testEngine } from "./testing/engine.ts";
import { runCode, type Settings } from "./testing/run-code.ts";

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
  expect(report).toMatchObject({ compiled: null, result: { kind: "object", text: '{"a": 1}\n' } });
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
    const program = { ...shell(["sh", "-c", compile, "/code/main.sh"]), run: ["cat", "/tmp/made"] };
    const { out, end, report } = await run("shout\n", program, { timeoutMs: 900 });
    expect([out, end]).toEqual(["SHOUT\n", "succeeded - 0"]);
    expect(report.compiled).toMatchObject({ exitStatus: 0, stdout: "read\n", stderr: "warned\n" });
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
    ["over its time", "while :; do :; done", 300, /^The compiler was stopped/, { timedOut: true }],
    [
      "that is missing",
      null,
      60_000,
      /no-such-compiler: the image has no such program/,
      { exitStatus: 127 },
    ],
  ])("%s ends the job, and the code does not run", async (_what, script, limitMs, words, told) => {
    const compile = script === null ? ["no-such-compiler"] : ["sh", "-c", script];
    const { out, end, verdict, report } = await run("echo ran", shell(compile, limitMs));
    expect([out, end]).toEqual(["", "failed compile_error null"]);
    expect(verdict.error?.message).toMatch(words);
    expect(report.compiled).toMatchObject(told);
  });

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
