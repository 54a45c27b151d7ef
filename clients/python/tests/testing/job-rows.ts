import { expect, test } from "vitest";
import { service } from "../../../../scripts/testing/use-test-service.ts";
import { examplesOf } from "../../../testing/examples-of.ts";
import { key, type PythonClient } from "../../../testing/python-client.ts";

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
