import { describe, expect, test } from "vitest";
import type { CallAnswer } from "../job.ts";
import { answering, tools } from "../testing/answer-calls.ts";
import { hostileCases } from "../testing/hostile.ts";
import { openSession } from "../testing/open-session.ts";

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
