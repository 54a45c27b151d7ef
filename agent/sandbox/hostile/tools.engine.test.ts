import { describe, expect, test } from "vitest";
import { limits } from "../../../shared/wire/limits.ts";
import { hostileCases } from "../../testing/hostile.ts";
import { answering, tools } from "../../testing/python-rows.ts";
import { openSession, type Settings } from "../../testing/run-code.ts";
import type { CallAnswer } from "../job.ts";

hostileCases(({ run }) => {
  describe("hostile 56: calls of tools that break their limits or their protocol", () => {
    async function runCalls(code: string, settings: Settings = {}) {
      const { calls, onCall } = answering();
      const job = { results: true, tools, ...settings.job };
      const result = await run(code, { ...settings, job, options: { onCall } });
      return { ...result, calls };
    }

    const forge = (rest: string): string => `
import json, os
tell = max(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd) and "pipe" in os.readlink("/proc/self/fd/" + fd))
answers = tell - 1
def raw(text): return b"q" + len(text).to_bytes(4, "big") + text
def call(**fields): return raw(json.dumps({"id": 900, "name": "add", "arguments": {}, **fields}).encode())
print(add(1))
${rest}
print(add(2))`;
    const both = ["add 1", "add 2"];
    const cases: [what: string, code: string, called: string[], end?: string][] = [
      ["of 4 GiB", `os.write(tell, b"q" + bytes([255] * 4))`, ["add 1"], "timeout"],
      ["of no bytes", `os.write(tell, raw(b""))`, ["add 1"], "timeout"],
      ["half of one", `os.write(tell, call()[:-5])`, ["add 1"], "timeout"],
      ["that is not JSON", `os.write(tell, raw(b"{"))`, both],
      ["a list", `os.write(tell, raw(b"[]"))`, both],
      ["of a name that is none of the caller's", `os.write(tell, call(name="eval"))`, both],
      ["of a name of objects", `os.write(tell, call(name="__proto__"))`, both],
      ["of a name with a line break", `os.write(tell, call(name="add\\r\\nX: y"))`, both],
      ["with arguments that are a text", `os.write(tell, call(arguments="a"))`, both],
      [
        "with arguments nested 100,000 deep",
        `os.write(tell, raw(b'{"id":900,"name":"add","arguments":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001))`,
        both,
      ],
      ["with an id that is none", `os.write(tell, call(id="x"))`, both],
      ["like a real one", `os.write(tell, call(arguments={"a": 5}))`, ["add 1", "add 5", "add 2"]],
      [
        "with the id of another: it gets both answers",
        `os.write(tell, call(id=2, arguments={"a": 5}))`,
        ["add 1", "add 5", "add 2"],
      ],
      ["over a closed pipe", `os.close(tell)`, ["add 1"], "timeout"],
      ["whose answers nobody can read", `os.close(answers)`, both, "failed"],
    ];

    test.each(cases)("a message: %s", async (_what, code, called, end = "succeeded") => {
      const job = { timeoutMs: 1500, tools: { ...tools, timeoutMs: 1000 } };
      const { calls, verdict } = await runCalls(forge(code), { job });
      const told = calls.map(({ name, arguments: given }) => `${name} ${String(given["a"])}`);
      expect([told, verdict.status]).toEqual([called, end]);
    });

    test("names in arguments stay data: __proto__, constructor, commands, headers", async () => {
      const { calls, out, end } = await runCalls(`
names = ["__proto__", "constructor", "$(id)", "'; DROP TABLE run_items; --", "a\\r\\nX: y", "</script>", "\\0", "\\ud800"]
print(echo(**{name: {name: 1} for name in names}) == {name: {name: 1} for name in names})`);
      expect([end, out]).toEqual(["succeeded - 0", "True\n"]);
      const given = calls[0]?.arguments ?? {};
      expect(Object.keys(given)).toContain("__proto__");
      expect(Object.getPrototypeOf(given)).toBe(Object.prototype);
      expect(JSON.stringify(given["__proto__"])).toBe('{"__proto__":1}');
      expect({}).not.toHaveProperty("1");
    });

    test("100,000 calls from many threads: no more than the limits come", async () => {
      const { calls, out, end } = await runCalls(
        `
import threading
failed = []
def flood():
    for n in range(2000):
        try: add(n)
        except ToolError: failed.append(n)
threads = [threading.Thread(target=flood) for _ in range(50)]
for each in threads: each.start()
for each in threads: each.join()
print(len(failed))`,
        { job: { timeoutMs: 60_000 } },
      );
      expect([end, calls.length]).toEqual(["succeeded - 0", limits.toolCallsMax]);
      expect(out).toBe(`${100_000 - limits.toolCallsMax}\n`);
    });

    test("a flood of forged calls that nobody answers", async () => {
      const { calls, end } = await runCalls(
        forge(`for n in range(100_000): os.write(tell, call(name="never", id=n + 1000))`),
        { job: { timeoutMs: 2000, tools: { ...tools, timeoutMs: 1000 } } },
      );
      expect(end).toBe("timeout execution_timeout null");
      expect(calls.length).toBeLessThanOrEqual(limits.toolCallsPendingMax + 1);
    });

    test("32 MiB of arguments in all", async () => {
      const { calls, out, end } = await runCalls(
        `
sent = 0
try:
    while True: echo(a="x" * 1_000_000); sent += 1
except ToolError: print(sent)`,
        { job: { timeoutMs: 60_000 } },
      );
      expect(end).toBe("succeeded - 0");
      expect(Number(out)).toBe(calls.length);
      const bytes = calls.reduce(
        (sum, { arguments: given }) => sum + JSON.stringify(given).length,
        0,
      );
      expect(bytes).toBeLessThanOrEqual(limits.toolCallsMaxBytes);
      expect(bytes).toBeGreaterThan(limits.toolCallsMaxBytes - 2_000_000);
    });

    test("no other process of the code has the descriptors of tool calls but its forks, which cannot call", async () => {
      const { calls, out } = await runCalls(`
import os, subprocess, sys
look = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[3:-1])"
print(subprocess.check_output([sys.executable, "-c", look], close_fds=False, text=True).strip())
if os.fork() == 0:
    try: add(1)
    except ToolError: print("refused", flush=True)
    os._exit(0)
os.wait()`);
      expect([out, calls]).toEqual(["[]\nrefused\n", []]);
    });
  });
});

hostileCases(({ place, runtime, agentName }) => {
  /** A session whose calls bring tools, except those with `plain`. */
  async function open(own?: Parameters<typeof answering>[0]) {
    const session = await openSession(place(), { runtime }, { agentName });
    const { calls, onCall } = answering(own);
    const few = { timeoutMs: 1500, tools: { ...tools, timeoutMs: 1000 } };
    return {
      calls,
      plain: session.call,
      call: (code: string, more: Parameters<typeof session.call>[1] = {}) =>
        session.call(code, { ...few, ...more }, { onCall }),
      [Symbol.asyncDispose]: session[Symbol.asyncDispose],
    };
  }

  const works = { end: "succeeded - 0", shown: ["3"], out: "", err: "" };
  const find = `
import json, os, threading
tell = 1023
def raw(text): return b"q" + len(text).to_bytes(4, "big") + text
def forged(**fields): return raw(json.dumps({"id": 900, "name": "add", "arguments": {}, **fields}).encode())`;

  describe("hostile 62: calls of a session that break the protocol of tools", () => {
    test.each([
      ["of no bytes", `os.write(tell, raw(b""))`],
      ["of 4 GiB", `os.write(tell, b"q" + bytes([255] * 4))`],
      ["half of one", `os.write(tell, forged()[:-5])`],
      ["of a name that is none of the caller's", `os.write(tell, forged(name="eval"))`],
      ["with the id of another", `os.write(tell, forged(id=1, arguments={"a": 5}))`],
      ["in a flood", `for n in range(10_000): os.write(tell, forged(name="never", id=n))`],
      [
        "whose answers another process reads",
        `
if os.fork() == 0:
    answers = os.open("/code/.answers", os.O_RDONLY)
    while os.read(answers, 1 << 16): pass
    os._exit(0)
add(1)`,
      ],
    ])("a tool call %s costs its interpreter at most", async (_what, code) => {
      await using session = await open();
      const { call, plain } = session;
      const forged = await call(`${find}\n${code}\nadd(1)`);
      expect(forged.report.lostReason).toBeNull();
      expect((await plain("1", { timeoutMs: 1500 })).report.lostReason).toBeNull();
      expect(await call("add(1, 2)", { restart: true })).toMatchObject(works);
    });

    test("a thread that forges them between two calls ends its interpreter at most", async () => {
      await using session = await open();
      const { call, calls, plain } = session;
      await call(`${find}
begin = threading.Event()
def forge():
    begin.wait()
    while True: os.write(tell, forged(name="echo"))
threading.Thread(target=forge, daemon=True).start()
add(1)`);
      const next = await plain("begin.set()\nwhile True: pass", { timeoutMs: 5000 });
      expect(next).toMatchObject({ end: "failed killed 137" });
      expect(next.report.lostReason).toBeNull();
      expect(await call("add(1, 2)", { restart: true })).toMatchObject(works);
      expect(calls.map(({ name }) => name)).toEqual(["add", "add"]);
    });

    test("answers that come late, while the next call waits for one to the same id, are not its own", async () => {
      const late: ((given: CallAnswer) => void)[] = [];
      await using session = await open(({ name }, answer) => {
        if (name === "never") return void late.push(answer);
        for (const one of late) one({ resultJson: '"late"' });
        answer({ resultJson: "3" });
      });
      const { call } = session;
      const cut = await call("never()");
      expect(cut.end).toBe("timeout execution_timeout null");
      expect(late).toHaveLength(1);
      expect(await call("add(1)")).toMatchObject(works);
    });

    test("nobody but PID 1 can give answers", async () => {
      await using session = await open();
      const told = await session.call(`
import os
def denied(act):
    try: act()
    except OSError: return True
fds = [fd for fd in os.listdir("/proc/self/fd") if os.path.realpath("/proc/self/fd/" + fd) == "/code/.answers"]
paths = ["/code/.answers", *("/proc/self/fd/" + fd for fd in fds)]
[denied(lambda: os.open(path, how)) for path in paths for how in (os.O_WRONLY, os.O_RDWR)] + [
    denied(lambda: os.unlink(paths[0])), denied(lambda: os.write(int(fds[0]), b"x"))]`);
      expect(told.shown).toEqual([`[${Array.from({ length: 6 }, () => "True").join(", ")}]`]);
    });

    test("200 threads that wait, call after call", async () => {
      await using session = await open();
      const { call } = session;
      const crowd = `
import threading
def wait(call=never):
    try: call()
    except ToolError: pass
threads = [threading.Thread(target=wait) for _ in range(40)]
for each in threads: each.start()`;
      for (let n = 0; n < 5; n++) {
        const begun = await call(crowd);
        expect(begun.end).toBe("succeeded - 0");
        const left = await call("for each in threads: each.join()\nadd(1, 2)");
        expect(left).toMatchObject(works);
      }
    });
  });
});
