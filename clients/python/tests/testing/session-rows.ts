import { expect, test } from "vitest";
import { service } from "../../../../scripts/testing/use-test-service.ts";
import { key, type PythonClient } from "../../../testing/python-client.ts";

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
