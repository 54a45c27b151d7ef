import { expect, test } from "vitest";
import type { CallAnswer, SandboxJob } from "./job.ts";
import { answering, tools } from "./testing/answer-calls.ts";
import { testEngine } from "./testing/engine.ts";
import { runCode } from "./testing/run-code.ts";

const place = await testEngine();

type Own = Parameters<typeof answering>[0];

async function runWith(code: string, job: Partial<SandboxJob> = {}, own?: Own) {
  const { calls, onCall } = answering(own);
  const options = { onCall };
  const run = await runCode(place, code, { job: { results: true, tools, ...job }, options });
  return { ...run, calls };
}

test("the code calls functions of the caller, in order with its output", async () => {
  const { out, err, end, calls } = await runWith(`
print(add(1, 2))
print(await later(3))`);
  expect({ out, err, end }).toEqual({ out: "3\n{'n': 3}\n", err: "", end: "succeeded - 0" });
  expect(calls).toEqual([
    { number: 1, name: "add", arguments: { a: 1, b: 2 }, stdoutAt: 0, stderrAt: 0 },
    { number: 2, name: "later", arguments: { n: 3 }, stdoutAt: 2, stderrAt: 0 },
  ]);
});

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
