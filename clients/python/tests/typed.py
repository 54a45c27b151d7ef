"""What type checkers must know of the client. Each ignored error must be one."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from pathlib import Path
from typing import List, Optional

import airlock

client = airlock.connect()
record: airlock.ExecutionRecord = client.run("1", timeout=1, on_stdout=print, on_stderr=[""].append)
stdout: str = record.stdout + record["stdout"]
names: List[str] = [file.name for file in record.artifacts or []]
metadata: Optional[str] = (record.metadata or {}).get("a")
_ = record.sttaus  # type: ignore
client.run("1", timout=1)  # type: ignore
client.run("1", results=True, on_result=lambda item: print(item.data["text/plain"]))
failed = client.list(status=["failed", "oom"], error="Memory", session_id="a")
client.files.upload("a", "a")  # type: ignore
client.files.upload("a", Path("a"))
client.batch(["1", {"code": "1", "files": [{"name": "a", "text": "a"}]}])
client.run("print(1)", tools=[print, {"name": "f"}])
client.run("print(1)", tools=[1])  # type: ignore
for job in client.batch([]).jobs:
    detail: str = job.detail if isinstance(job, airlock.Problem) else job.job_id
for event in client.stream(record.execution_id):
    text: Optional[str] = event.data.text
with client.session(idle_timeout=None, env={"A": "1"}) as session:
    call: airlock.ExecutionRecord = session.run("1", context="default", on_stdout=print)
    session.run(command=["ls"], files=[{"name": "a", "text": "a", "to": "work"}])
    session.run("1", contxt="a")  # type: ignore
    session.files.write("a", Path("a"))
    sizes: List[int] = [file.size_bytes for file in session.files.list()]
    state: str = session.info().status
client.session(idle_timout=1)  # type: ignore


async def use(client: airlock.AsyncAirlock) -> str:
    async with client.session() as session:
        await session.run("1", contxt="a")  # type: ignore
        await session.files.write("a", Path("a"))
        names: List[str] = [one.path for one in await session.files.list()]
        return (await session.run("1", on_stdout=print)).stdout + names[0]


async def wait(client: airlock.AsyncAirlock) -> str:
    async def show(text: str) -> None:
        print(text)

    await client.run("1", on_stdout=show, on_stderr=print)
    await client.run("1", timout=1)  # type: ignore
    await client.run(1)  # type: ignore
    await client.keys.create("ci", ["fly"])  # type: ignore
    key: airlock.NewApiKey = await client.keys.create("ci", ["run"])
    print(key.kye)  # type: ignore
    async for letter in client.dead_letters.list(limit=1):
        print(letter.job_id)
    try:
        return [record.status async for record in client.list(status="failed")][0]
    except airlock.InvalidRequestError as error:
        return error.problem.detail if error.problem else error.job_id or ""


key: airlock.NewApiKey = client.keys.create("ci", ["run"], tenant="search")
client.keys.create("ci", ["fly"])  # type: ignore
secret: str = key.key
stored: float = client.tenants.set_limits("search", max_queued=1).usage.stored_bytes
client.tenants.set_limits("search", max_qeued=1)  # type: ignore
who: List[str] = [entry.key_name for entry in client.audit(action="key.create")]
