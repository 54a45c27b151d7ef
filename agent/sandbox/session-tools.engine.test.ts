import { describe, expect, test } from "vitest";
import type { CallAnswer } from "./job.ts";
import { answering, tools } from "./testing/answer-calls.ts";
import { testEngine } from "./testing/engine.ts";
import { openSession } from "./testing/open-session.ts";

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
