import { createHmac } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { receiverSecret } from "../../api/testing/receiver.ts";
import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { startNode } from "../../api/testing/start-node.ts";
import { startCuttingProxy } from "../../scripts/testing/proxies.ts";
import { service } from "../../scripts/testing/test-service.ts";
import { examplesOf, key, type PythonClient } from "./programs.ts";
import {
  otherSecret,
  receiveDelivery,
  startEventService,
  startUploadService,
  uploadBytes,
  uploadCuts,
  wrongSecret,
} from "./services.ts";

/** What must hold of jobs on the real engine. */
export function jobRows(python: PythonClient): void {
  test("the examples of the README print what they say", async () => {
    const { program, prints } = examplesOf("clients/python/README.md", "python", {
      url: service.url,
      key,
    });
    expect(prints).toHaveLength(8);
    const inFolder = "import os, tempfile\nos.chdir(tempfile.mkdtemp())\n";
    expect(await python.print(inFolder + program)).toBe(`${prints.join("\n")}\n`);
  });

  test("results come with the record, and a notebook shows them", async () => {
    const program = `
code = """
class Table:
    def _repr_html_(self): return "<b onclick='x'>1</b>"
    def __repr__(self): return "Table"
    def _repr_json_(self): return {"a": 1}
    def _repr_javascript_(self): return "alert(1)"
display(Table())
print("said")
await __import__("asyncio").sleep(0, 6 * 7)
"""
client = airlock.connect(sys.argv[1], sys.argv[2])
record = client.run(code, results=True)
shown = [(item.number, item.main, item.data["text/plain"], item.stdout_at) for item in record.results]
bundle = record.results[0]._repr_mimebundle_(include=None, exclude=None)
events = [event for event in client.stream(record.execution_id) if event.event == "display"]
print(json.dumps([shown, sorted(bundle), bundle["application/json"], bundle["text/html"][:50],
    [event.data.number for event in events], client.run("1").results]))`;
    const page = `<iframe sandbox srcdoc="&lt;b onclick=&#x27;x&#x27;&gt;1`.slice(0, 50);
    const shown = [
      [1, false, "Table", 0],
      [2, true, "42", 5],
    ];
    const types = ["application/json", "text/html", "text/plain"];
    const told = [shown, types, { a: 1 }, page, [1, 2], null];
    expect(await python.run(program, service.url, key)).toEqual(told);
  });

  test("cancelling an async run cancels its job", async () => {
    const program = `
async def main():
    client = airlock.connect_async(sys.argv[1], sys.argv[2])
    running = asyncio.ensure_future(
        client.run("import time; time.sleep(600)", metadata={"test": "cancel"}, startup_timeout=600)
    )
    items = []
    while not items:
        query = {"metadata": "test:cancel", "status": "running"}
        items = (await client.request("GET", "/executions", query))["items"]
    running.cancel()
    end = (await asyncio.gather(running, return_exceptions=True))[0]
    record = await client.wait(items[0]["execution_id"])
    print(json.dumps([type(end).__name__, record["status"], threading.active_count()]))
asyncio.run(main())`;
    const [end, status] = await python.run<[string, string]>(program, service.url, key);
    expect([end, status]).toEqual(["CancelledError", "cancelled"]);
  });

  test("callbacks get the output as it happens, in the thread or the loop of the call", async () => {
    const program = `
code = "import sys; print('ü'); print(input(), file=sys.stderr); open('/output/go', 'w').close()"
client = airlock.connect(sys.argv[1], sys.argv[2])
told = {"out": [], "err": [], "threads": set()}
def out(text):
    told["out"].append(text)
    told["threads"].add(threading.current_thread())
async def err(text):
    told["err"].append(text)
record = client.run(code, stdin="in", on_stdout=out, on_stderr=told["err"].append)
async def main():
    async with airlock.connect_async(sys.argv[1], sys.argv[2]) as client:
        await client.run(code, stdin="in", on_stdout=out, on_stderr=err)
        return await client.wait(record.execution_id, on_stdout=out)
assert asyncio.run(main()) == record
print(json.dumps(["".join(told["out"]), "".join(told["err"]), len(told["threads"]), record.status]))`;
    const told = ["ü\n".repeat(3), "in\n".repeat(2), 1, "succeeded"];
    expect(await python.run(program, service.url, key)).toEqual(told);
  });

  test("an interrupted run cancels its job, and so does one whose callback fails", async () => {
    const program = `
import os, signal
client = airlock.connect(sys.argv[1], sys.argv[2])
def fail(text):
    raise LookupError(text)
def interrupt(text):
    os.kill(os.getpid(), signal.SIGINT)
def told(call, which):
    metadata = {"test": which}
    try:
        client.run("import time; print('a', flush=True); time.sleep(600)", on_stdout=call, metadata=metadata)
    except (LookupError, KeyboardInterrupt) as error:
        [job] = client.list(metadata=metadata)
        return [type(error).__name__, client.wait(job.execution_id).status]
print(json.dumps([told(fail, "fail"), told(interrupt, "interrupt")]))`;
    expect(await python.run(program, service.url, key)).toEqual([
      ["LookupError", "cancelled"],
      ["KeyboardInterrupt", "cancelled"],
    ]);
  });

  test("jobs, batches and dead letters have methods, and files go to and from disk", async () => {
    const program = `
import tempfile
from pathlib import Path
folder = Path(tempfile.mkdtemp())
(folder / "in").write_bytes(b"in")
code = "import shutil, sys; shutil.copy('/input/a', '/output/a b'); sys.exit('no')"
async def main():
    client = airlock.connect_async(sys.argv[1], sys.argv[2])
    file = await client.files.upload("a", folder / "in")
    await client.files.save(file.file_id, folder / "saved")
    batch = await client.batch([{"code": code, "files": [{"name": "a", "file_id": file.file_id}]}])
    [job] = batch.jobs
    record = await client.wait(job.job_id)
    await client.artifacts.save(job.job_id, record.artifacts[0].name, folder / "new" / "out")
    again = await client.rerun(job.job_id, metadata={"test": "again"})
    forked = await client.fork(again.job_id, "print(open('/input/a').read())")
    ended = [await client.wait(one.job_id) for one in (again, forked)]
    [letter] = [one async for one in client.dead_letters.list(limit=5) if one.job_id == job.job_id]
    stats = await client.dead_letters.stats()
    await client.dead_letters.delete(letter.id)
    left = [one.job_id async for one in client.dead_letters.list()]
    return [
        (await client.batches.get(batch.batch_id)).counts.failed,
        (await client.batches.cancel(batch.batch_id)).finished,
        [one.execution_id async for one in client.list(batch_id=batch.batch_id)] == [job.job_id],
        len([one async for one in client.list(limit=2)]),
        [one.execution_id async for one in client.list(status=["failed", "oom"], error=record.error.type, limit=1,
            batch_id=batch.batch_id)] == [job.job_id],
        [one async for one in client.list(error="another", batch_id=batch.batch_id)],
        [(one.status, one.relationship, one.stdout) for one in ended],
        [letter.job_data.code == code, stats.total, job.job_id in left],
        sorted(str(path.relative_to(folder)) + path.read_text() for path in folder.rglob("*") if path.is_file()),
    ]
print(json.dumps(asyncio.run(main())))`;
    expect(await python.run(program, service.url, key)).toEqual([
      1,
      true,
      true,
      2,
      true,
      [],
      [
        ["failed", "rerun", ""],
        ["succeeded", "fork", "in\n"],
      ],
      [true, expect.any(Number), false],
      ["inin", "new/outin", "savedin"],
    ]);
  });
}

/** What must hold of sessions on the real engine. */
export function sessionRows(python: PythonClient): void {
  test("a session remembers, shows values, gives output as it happens, and ends with its block", async () => {
    const program = `
client = airlock.connect(sys.argv[1], sys.argv[2])
told = []
with client.session(metadata={"test": "remembers"}, env={"WHO": "Ada"}) as session:
    session.run("import os; x = 41")
    record = session.run("print('hello', os.environ['WHO']); x + 1", on_stdout=told.append)
    failed = session.run("1 / 0")
    after = session.run(code="x", input_data={"a": 1}, timeout=5)
    state = session.info()
    listed = [one.session_id for one in client.sessions.list(status="ready", limit=5)]
try:
    session.run("x")
except airlock.SessionEndedError as error:
    refused = [error.code, error.problem.reason, error.problem.session_id == session.id]
ended = client.sessions.get(session.id)
shown = [record.results[0].data["text/plain"], after.results[0].data["text/plain"]]
print(json.dumps(["".join(told), shown, failed.error.type, [record.call, record.session_id == session.id],
    [state.status, state.calls, state.metadata], listed == [session.id], refused, [ended.status, ended.reason]]))`;
    expect(await python.run(program, service.url, key)).toEqual([
      "hello Ada\n",
      ["42", "41"],
      "division_error",
      [2, true],
      ["ready", 4, { test: "remembers" }],
      true,
      ["session_ended", "deleted", true],
      ["ended", "deleted"],
    ]);
  });

  test("files of a session are written, read, saved, listed and deleted", async () => {
    const program = `
import os, tempfile
from pathlib import Path
folder = Path(tempfile.mkdtemp())
(folder / "in").write_bytes(b"\\x00in")
client = airlock.connect(sys.argv[1], sys.argv[2])
with client.session() as session:
    session.files.write("a b.txt", "ä")
    session.files.write("sub/in", folder / "in")
    session.files.write("bytes", b"\\xff")
    code = "open('made', 'w').write(open('a b.txt').read() * 2); open('sub/in', 'rb').read()"
    shown = session.run(code).results[0].data["text/plain"]
    session.files.save("made", folder / "out" / "made")
    session.files.delete("bytes")
    names = [[file.path, file.type, file.size_bytes] for file in session.files.list()]
    try:
        session.files.read("bytes")
    except airlock.NotFoundError:
        names.append("gone")
    print(json.dumps([shown, session.files.read("sub/in").hex(), (folder / "out" / "made").read_text(), names,
        [file.path for file in session.files.list("sub")]]))`;
    expect(await python.run(program, service.url, key)).toEqual([
      String.raw`b'\x00in'`,
      "00696e",
      "ää",
      [["a b.txt", "file", 2], ["made", "file", 4], ["sub", "folder", expect.any(Number)], "gone"],
      ["sub/in"],
    ]);
  });

  test("a call is interrupted and keeps variables; a restart forgets them; contexts have their own", async () => {
    const program = `
client = airlock.connect(sys.argv[1], sys.argv[2])
with client.sessions.create(wait=60) as session:
    idle = session.interrupt().job_id
    session.run("x = 1")
    job = session.submit("print('on', flush=True)\\nwhile True: pass")
    for event in client.stream(job.job_id):
        if event.event == "stdout":
            interrupted = session.interrupt().job_id == job.job_id
    status = client.wait(job.job_id).status
    other = session.contexts.create().context_id
    session.run("x = 2", context=other)
    value = lambda **fields: session.run("x", **fields).results[0].data["text/plain"]
    kept = [value(), value(context=other)]
    contexts = [one.context_id for one in session.contexts.list()] == ["default", other]
    session.contexts.delete(session.contexts.create().context_id)
    restarted = session.restart().status
    forgotten = session.run("x").error.type
    ran = session.run(command=["echo", "program"]).stdout
    patched = session.update(idle_timeout=None, metadata={"a": "b"})
    print(json.dumps([idle, interrupted, status, kept, contexts, restarted, forgotten, value(context=other), ran,
        [patched.idle_timeout, patched.metadata]]))`;
    expect(await python.run(program, service.url, key)).toEqual([
      null,
      true,
      "cancelled",
      ["1", "2"],
      true,
      "succeeded",
      "name_error",
      "2",
      "program\n",
      [null, { a: "b" }],
    ]);
  });

  test("for asyncio, a session is the same; cancelling a call interrupts its code", async () => {
    const program = `
async def main():
    async with airlock.connect_async(sys.argv[1], sys.argv[2]) as client:
        async with client.session() as session:
            begun = asyncio.Event()
            async def note(text):
                begun.set()
            await session.run("x = 1")
            code = "print('on', flush=True)\\nwhile True: pass"
            running = asyncio.ensure_future(session.run(code, on_stdout=note))
            await begun.wait()
            running.cancel()
            end = (await asyncio.gather(running, return_exceptions=True))[0]
            record = await session.run("x")
            await session.files.write("a", b"a")
            files = [(await session.files.read("a")).decode(), [one.path for one in await session.files.list()]]
            state = await client.sessions.attach(session.id).info()
        states = [one.status async for one in client.sessions.list(limit=1)]
        return [type(end).__name__, record.results[0].data["text/plain"], files, state.status, states]
print(json.dumps(asyncio.run(main())))`;
    expect(await python.run(program, service.url, key)).toEqual([
      "CancelledError",
      "1",
      ["a", ["a"]],
      "ready",
      ["ended"],
    ]);
  });

  test("a call calls functions of this program, also for asyncio; the next one has their names no more", async () => {
    const program = `
threads = set()
def double(n: int) -> int:
    threads.add(threading.current_thread() is threading.main_thread())
    return 2 * n
client = airlock.connect(sys.argv[1], sys.argv[2])
shown = lambda record: record.results[0].data["text/plain"]
async def main(session_id):
    session = airlock.connect_async(sys.argv[1], sys.argv[2]).sessions.attach(session_id)
    together = asyncio.Event()
    waiting = []
    async def meet(n: int):
        waiting.append(n)
        if len(waiting) == 10: together.set()
        await together.wait()
        return n
    code = "import asyncio; sum(await asyncio.gather(*[meet(n) for n in range(10)])) + x"
    return shown(await session.run(code, tools=[meet]))
with client.session() as session:
    value = shown(session.run("x = double(double(double(5))); x", tools=[double]))
    gone = session.run("double(1)").error.type
    print(json.dumps([value, list(threads), gone, asyncio.run(main(session.id))]))`;
    const told = await python.run(program, service.url, key);
    expect(told).toEqual(["40", [true], "name_error", "85"]);
  });
}

/** Functions of the program that code calls, on the real engine. */
export function toolRows(python: PythonClient): void {
  test("the example of the guide prints what it says: a model calls three tools in one program", async () => {
    const guide = "docs/guides/tools.md";
    const { program, prints } = examplesOf(guide, "python", { url: service.url, key });
    expect(prints).toHaveLength(2);
    expect(await python.print(program)).toBe(`${prints.join("\n")}\n`);
  });

  test("a function's name, docstring and parameters are those in the code", async () => {
    const program = `
from typing import Dict, List, Literal, Optional
def search(text: str, limit: int = 10, *, kinds: Optional[List[str]] = None, order: Literal["up", "down"] = "up",
        where: Dict[str, int] = {}, exact: bool = False, weight: float = 1.0, other=None, **more):
    """Searches.

    In all documents.
    """
def first(a, /): pass
async def wait(n: "int"): pass
from airlock.tools import describe
class Odd:
    def __call__(self): pass
def problem(tool):
    try: describe(tool)
    except TypeError as error: return str(error)[-40:]
client = airlock.connect(sys.argv[1], sys.argv[2])
code = """
import inspect
print(inspect.signature(search), inspect.signature(wait), inspect.iscoroutinefunction(wait))
print(search.__doc__)
"""
record = client.run(code, tools=[search, wait])
print(json.dumps([describe(search), problem(first), problem(Odd()), record.stdout, record.tools[1]]))`;
    const [described, positional, nameless, stdout, told] = await python.run<unknown[]>(
      program,
      service.url,
      key,
    );
    expect(described).toEqual({
      name: "search",
      description: "Searches.\n\nIn all documents.",
      parameters: {
        type: "object",
        properties: {
          text: { type: "string" },
          limit: { type: "integer" },
          kinds: { anyOf: [{ type: "array", items: { type: "string" } }, { type: "null" }] },
          order: { enum: ["up", "down"] },
          where: { type: "object" },
          exact: { type: "boolean" },
          weight: { type: "number" },
          other: {},
        },
        required: ["text"],
        additionalProperties: true,
      },
    });
    expect(positional).toContain("can be given by name");
    expect(nameless).toContain("has no name");
    const optional = ["limit", "kinds", "order", "where", "exact", "weight", "other"];
    const signature = ["text", ...optional.map((one) => `${one}=Ellipsis`), "**others"].join(", ");
    expect(stdout).toBe(`(${signature}) (n) True\nSearches.\n\nIn all documents.\n`);
    expect(told).toMatchObject({ name: "wait", awaitable: true });
  });

  test("run calls functions in its own thread, and the code gets results and exceptions", async () => {
    const program = `
threads = set()
def price(item: str) -> int:
    threads.add(threading.get_ident() == threading.main_thread().ident)
    return {"tea": 380}[item]
def whole(): return 1.0, 2 ** 70, None
def unfit(): return object()
def large(): return "x" * 2_000_000
client = airlock.connect(sys.argv[1], sys.argv[2])
code = """
print(price("tea") + price(item="tea"), whole())
for failing in (lambda: price("gold"), unfit, large):
    try: failing()
    except ToolError as error: print(error)
"""
parts = []
record = client.run(code, tools=[price, whole, unfit, large], on_stdout=parts.append)
print(json.dumps([record.status, record.stdout, "".join(parts) == record.stdout, list(threads)]))`;
    const told = await python.run(program, service.url, key);
    const prints = [
      "760 [1.0, 1180591620717411303424, None]",
      "KeyError: 'gold'",
      "The result is no JSON: Object of type object is not JSON serializable",
      "The result is larger than an answer may be.",
    ];
    expect(told).toEqual(["succeeded", `${prints.join("\n")}\n`, true, [true]]);
  });

  test("an async run answers all calls that wait at once", async () => {
    const program = `
async def main():
    client = airlock.connect_async(sys.argv[1], sys.argv[2])
    together = asyncio.Event()
    waiting = []
    async def meet(n: int):
        waiting.append(n)
        if len(waiting) == 10: together.set()
        await together.wait()
        return n
    def plain(): return threading.current_thread() is threading.main_thread()
    code = """
import asyncio
print(sum(await asyncio.gather(*[meet(n) for n in range(10)])), plain())
"""
    record = await client.run(code, tools=[meet, plain])
    job = await client.submit("print(plain())", tools=[plain])
    again = await client.wait(job.job_id, tools=[plain])
    print(json.dumps([record.stdout, again.stdout]))
asyncio.run(main())`;
    expect(await python.run(program, service.url, key)).toEqual(["45 False\n", "False\n"]);
  });

  test("values that the code shows come as it shows them, also for asyncio", async () => {
    const program = `
code = "display(1)\\nprint(seen())\\n2"
def told(items): return [[item.data["text/plain"], item.main] for item in items]
shown = []
def seen(): return len(shown)
record = airlock.connect(sys.argv[1], sys.argv[2]).run(code, tools=[seen], on_result=shown.append)
async def main():
    items = []
    async def note(item): items.append(item)
    async def seen(): return len(items)
    client = airlock.connect_async(sys.argv[1], sys.argv[2])
    record = await client.run("display(1)\\nprint(await seen())\\n2", tools=[seen], on_result=note)
    return record.stdout, told(items)
print(json.dumps([[record.stdout, told(shown)], asyncio.run(main())]))`;
    const expected = [
      "1\n",
      [
        ["1", false],
        ["2", true],
      ],
    ];
    expect(await python.run(program, service.url, key)).toEqual([expected, expected]);
  });

  test("an interrupt inside a function cancels the job", async () => {
    const program = `
def stop(): raise KeyboardInterrupt
client = airlock.connect(sys.argv[1], sys.argv[2])
try: client.run("stop()", tools=[stop], metadata={"test": "stop"})
except KeyboardInterrupt: pass
record = next(client.list(metadata={"test": "stop"}))
print(json.dumps(client.wait(record.execution_id).status))`;
    expect(await python.run(program, service.url, key)).toBe("cancelled");
  });

  test("another client that takes over gets the calls that wait, and none that has its answer", async () => {
    const program = `
client = airlock.connect(sys.argv[1], sys.argv[2])
def one(): return 1
def two(): return 2
job = client.submit("print(one(), two())", tools=[one, two]).job_id
for event in client.stream(job):
    if event.event == "tool_call" and event.data.name == "one":
        client.request("POST", f"/jobs/{job}/tool-calls/{event.data.number}", body={"result": 10})
    elif event.event == "tool_call":
        break
called = []
def one(): called.append(1)
def two(): called.append(2); return 20
record = client.wait(job, tools=[one, two])
print(json.dumps([record.stdout, called]))`;
    expect(await python.run(program, service.url, key)).toEqual(["10 20\n", [2]]);
  });
}

const token = "agent-token-0123456789";
const points = (end: number, step: number): number[] =>
  Array.from({ length: Math.ceil(end / step) }, (_, n) => n * step + 1);

/** What must hold when connections break. */
export function breakRows(python: PythonClient): void {
  test("a stream whose connection breaks at any point brings every event once, in order", async () => {
    await using service = await startEventService();
    await using proxy = await startCuttingProxy(service.url);
    const cuts = points(900, 60);
    // Each stream takes two connections: one that breaks, and one that is whole.
    proxy.cutNext(...cuts.flatMap((answer) => [{ answer }, {}]));
    const program = `
client = airlock.connect(sys.argv[1])
print(json.dumps([list(client.stream("j")) for _ in range(int(sys.argv[2]))]))`;
    const streams = await python.run<{ id?: string }[][]>(program, proxy.url, String(cuts.length));
    expect(proxy.cuts()).toBe(cuts.length);
    for (const events of streams) {
      // Only an event without a cursor can come again.
      expect(events.filter(({ id }) => id)).toEqual(service.events.filter(({ id }) => id));
    }
  });

  test("a stream goes on when an answer ends before the job does, and from a given event", async () => {
    await using service = await startEventService(2);
    const program = `
client = airlock.connect(sys.argv[1])
print(json.dumps([list(client.stream("j", after=after)) for after in (None, "c/3+", "c/end")]))`;
    expect(await python.run(program, service.url)).toEqual([
      service.events,
      service.events.slice(5),
      [],
    ]);
  });

  test("an upload whose connection breaks at any point stores one file, from memory and from disk", async () => {
    await using service = await startUploadService();
    const cuts = uploadCuts.flatMap((cut) => [cut, {}, cut, {}]);
    service.proxy.cutNext(...cuts);
    const program = `
import hashlib, pathlib, tempfile
client = airlock.connect(sys.argv[1])
body = bytes(range(256)) * (${uploadBytes} // 256)
with tempfile.NamedTemporaryFile() as file:
    file.write(body); file.flush()
    for n in range(${uploadCuts.length}):
        client.files.upload(f"{n} memory", body)
        client.files.upload(f"{n} disk", pathlib.Path(file.name))
digest = hashlib.sha256(body).hexdigest()
print(json.dumps(sorted(f"{n} {of} {len(body)} {digest}" for n in range(${uploadCuts.length}) for of in ("memory", "disk"))))`;
    expect(await service.files()).toEqual([]);
    expect(await python.run(program, service.proxy.url)).toEqual(await service.files());
    expect(service.proxy.cuts()).toBe(2 * uploadCuts.length);
  });

  test("a file is saved whole wherever its connection breaks, and continues from there", async () => {
    await using service = await startUploadService();
    const cuts = [0, 1, 40, 300, 70_000, uploadBytes / 2, uploadBytes];
    const broken = cuts.flatMap((answer) => [{ answer }, {}]);
    service.proxy.cutNext({}, ...broken, { answer: 300_000 }, { answer: 300_000 });
    const program = `
import os, tempfile
client = airlock.connect(sys.argv[1])
body = bytes(range(256)) * (${uploadBytes} // 256)
id = client.files.upload("a", body).file_id
folder = tempfile.mkdtemp()
def saved():
    client.files.save(id, os.path.join(folder, "a"))
    with open(os.path.join(folder, "a"), "rb") as file:
        return file.read() == body
print(json.dumps([[saved() for _ in range(${cuts.length})], client.files.get(id) == body, os.listdir(folder)]))`;
    expect(await python.run(program, service.proxy.url)).toEqual([
      cuts.map(() => true),
      true,
      ["a"],
    ]);
    expect(service.proxy.cuts()).toBe(cuts.length + 2);
  });

  test("an upload that is not sent again is an error and leaves nothing; so does one that is too large", async () => {
    await using service = await startUploadService();
    const cuts = uploadCuts.filter(({ request }) => request !== undefined);
    service.proxy.cutNext(...cuts);
    const program = `
client = airlock.connect(sys.argv[1], retries=0)
ends = []
for size in [${uploadBytes}] * ${cuts.length} + [${uploadBytes + 1}, ${3 * uploadBytes}]:
    try:
        client.files.upload("a", bytes(size))
    except airlock.AirlockError as error:
        ends.append(type(error).__name__)
print(json.dumps(ends))`;
    expect(await python.run(program, service.proxy.url)).toEqual([
      ...cuts.map(() => "ConnectionError"),
      "TooLargeError",
      "TooLargeError",
    ]);
    expect(await service.files()).toEqual([]);
  });

  test("a submission and a wait whose connections break at any point make and find one job", async () => {
    await using proxyOfApi = await startApi();
    const { url, api, proxy } = proxyOfApi;
    const cuts = [
      ...points(300, 100).map((request) => ({ request })),
      ...points(600, 100).map((answer) => ({ answer })),
    ];
    proxy.cutNext(...cuts.flatMap((cut) => [cut, {}]));
    const submit = `
client = airlock.connect(sys.argv[1])
jobs = [client.submit("pass", metadata={"test": "cut"})["job_id"] for _ in range(${cuts.length})]
print(json.dumps(jobs))`;
    const ids = await python.run<string[]>(submit, url);
    expect(proxy.cuts()).toBe(cuts.length);
    const list = await fetch(`${api}/executions?metadata=test:cut`);
    const { items } = (await list.json()) as { items: { execution_id: string }[] };
    expect(items).toHaveLength(ids.length);
    expect(new Set(items.map(({ execution_id }) => execution_id))).toEqual(new Set(ids));

    const agent = new ScriptedAgent(api, token);
    for (let left = ids.length; left > 0; left--) {
      const job = await agent.takeJob();
      await agent.result(job.lease_id, { status: "succeeded", exit_code: 0 });
    }
    proxy.cutNext(...ids.flatMap((_, n) => [{ answer: n * 100 + 1 }, {}]));
    const wait = `
client = airlock.connect(sys.argv[1])
print(json.dumps([client.wait(id)["status"] for id in sys.argv[2:]]))`;
    expect(await python.run(wait, url, ...ids)).toEqual(ids.map(() => "succeeded"));
  });

  test("a refusal raises the class of its code, and names the fields", async () => {
    await using service = await startApi();
    const program = `
client = airlock.connect(sys.argv[1])
told = []
for call in (
    lambda: client.submit(""),
    lambda: client.wait("00000000-0000-7000-8000-000000000000"),
    lambda: client.wait(client.submit("pass")["job_id"], wait_s=0),
    lambda: airlock.connect("http://127.0.0.1:1", retries=1).submit("pass"),
):
    try:
        call()
    except airlock.AirlockError as error:
        told.append([type(error).__name__, getattr(error, "code", None), str(error)])
print(json.dumps(told))`;
    expect(await python.run(program, service.url)).toEqual([
      [
        "InvalidRequestError",
        "invalid_request",
        "The request is not valid: code: must not be empty",
      ],
      ["NotFoundError", "not_found", expect.stringContaining("does not exist")],
      ["WaitTimeoutError", "wait_timeout", expect.stringContaining("did not end within 0 s")],
      ["ConnectionError", null, expect.stringContaining("http://127.0.0.1:1 could not be reached")],
    ]);
  });

  test("cancelling an async call closes its socket and ends its thread", async () => {
    await using service = await startApi();
    const program = `
async def main():
    client = airlock.connect_async(sys.argv[1])
    job = await client.submit("pass")
    waiting = [asyncio.ensure_future(client.wait(job["job_id"])) for _ in range(50)]
    done, _ = await asyncio.wait(waiting, timeout=1)
    during = threading.active_count()
    for wait in waiting:
        wait.cancel()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    while threading.active_count() > 1:
        await asyncio.sleep(0.01)
    print(json.dumps([len(done), during, sorted({type(end).__name__ for end in ends})]))
asyncio.run(main())`;
    expect(await python.run(program, service.url)).toEqual([0, 51, ["CancelledError"]]);
  });
}

/** A real API without agents, behind a proxy. */
async function startApi() {
  const api = await startNode({
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
  });
  const proxy = await startCuttingProxy(api.url);
  return {
    api: api.url,
    url: proxy.url,
    proxy,
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await api.close();
    },
  };
}

const secret = `whsec_${Buffer.from("a secret of thirty-two bytes ++++").toString("base64")}`;
const body = '{"type":"execution.succeeded","data":{"ü":1}}';
const signedAt = new Date("2026-11-22T00:00:00Z");

/** What must hold of deliveries. */
export function webhookRows(python: PythonClient): void {
  test("what the reference library signs is verified, and nothing else", async () => {
    const signature = new Webhook(secret).sign("msg_1", signedAt, body);
    const headers = {
      "Webhook-Id": "msg_1",
      "webhook-timestamp": String(signedAt.getTime() / 1000),
      "webhook-signature": `v1,AAAA v2,x ${signature}`,
    };
    const program = `
body, headers, secret, at, forged = json.loads(sys.argv[1])
def told(*args, now=at):
    try:
        return airlock.verify_webhook(*args, now=now)["type"]
    except airlock.WebhookError as error:
        return str(error)[:12]
print(json.dumps([
    told(body, headers, secret),
    told(body.encode(), headers, ["whsec_" + "A" * 32, secret]),
    told(body + " ", headers, secret),
    told(body, headers, "whsec_" + "A" * 32),
    told(body, {**headers, "Webhook-Id": "msg_2"}, secret),
    told(body, headers, secret, now=at + 301),
    told(body, {**headers, "webhook-timestamp": "x"}, secret),
    told(body, {}, secret),
    told(body, headers, "whsec_*"),
    told(body, headers, "whsec_…"),
    told(body, {**headers, "webhook-timestamp": "9" * 400}, secret),
    told(body, {**headers, "webhook-signature": "v1,\\udcff"}, secret),
    told(body, {**headers, "webhook-id": "\\udcff"}, secret),
    told(body + "\\udcff", headers, secret),
    # Anybody can sign with an empty key.
    told(body, {**headers, "webhook-signature": forged}, ["", secret]),
]))`;
    const at = signedAt.getTime() / 1000;
    const mac = createHmac("sha256", "").update(`msg_1.${at}.${body}`).digest("base64");
    const given = JSON.stringify([body, headers, secret, at, `v1,${mac}`]);
    expect(await python.run(program, given)).toEqual([
      "execution.succeeded",
      "execution.succeeded",
      "No signature",
      "No signature",
      "No signature",
      "webhook-time",
      "webhook-time",
      "The header w",
      "A secret is ",
      "A secret is ",
      "webhook-time",
      "No signature",
      "No signature",
      "No signature",
      "A secret is ",
    ]);
  });

  test("a delivery of the service is verified, with each of the secrets that rotate; no other is", async () => {
    const single = await receiveDelivery();
    const rotating = await receiveDelivery([receiverSecret, otherSecret]);
    const program = `
given = json.loads(sys.argv[1])
def told(delivery, secrets, late_s=0, more=""):
    headers, body = delivery["headers"], delivery["body"] + more
    now = int(headers["webhook-timestamp"]) + late_s
    try:
        return airlock.verify_webhook(body.encode(), headers, secrets, now=now) == delivery["event"]
    except airlock.WebhookError as error:
        return str(error)[:12]
main, other, wrong = given["secrets"]
print(json.dumps([
    [
        told(one, main), told(one, [other, main]), told(one, other), told(one, wrong),
        told(one, main, late_s=301), told(one, main, more=" "),
    ]
    for one in given["deliveries"]
]))`;
    const secrets = [receiverSecret, otherSecret, wrongSecret];
    const given = JSON.stringify({ deliveries: [single, rotating], secrets });
    const refused = ["No signature", "webhook-time", "No signature"];
    expect(await python.run(program, given)).toEqual([
      [true, true, "No signature", ...refused],
      [true, true, true, ...refused],
    ]);
  });
}
