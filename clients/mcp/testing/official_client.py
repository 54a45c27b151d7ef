"""Uses the official Python client for tests. Runs the task named on the command line, prints what it found as JSON."""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

task, mode, where, *rest = sys.argv[1:]
url, key = os.environ["AIRLOCK_URL"], os.environ["AIRLOCK_KEY"]


def target():
    if where == "stdio":
        return StdioServerParameters(command=rest[0], args=rest[1:], env=dict(os.environ))
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=90)
    return streamable_http_client(f"{url}/mcp", http_client=http)


async def run(client):
    tools = await client.list_tools()
    progress = []
    program = """
import os, sys, time
print(input(), sys.argv[1], open('/input/a.txt').read(), flush=True)
time.sleep(5)
open('/output/large.png', 'wb').write(bytes(1024 * 1024))
open('/output/file.bin', 'wb').write(bytes(4 * 1024 * 1024))
"""

    async def on_progress(done, total, message):
        progress.append(message)

    result = await client.call_tool(
        "execute_code",
        {
            "code": program,
            "stdin": "one",
            "args": ["two"],
            "files": [{"name": "a.txt", "text": "three"}],
        },
        progress_callback=on_progress,
    )
    job = result.structured_content
    picture = await client.call_tool(
        "read_artifact", {"job_id": job["job_id"], "name": "large.png"}
    )
    [file] = (
        await client.read_resource(f"airlock://jobs/{job['job_id']}/artifacts/file.bin")
    ).contents
    return {
        "version": client.protocol_version,
        "tools": [tool.name for tool in tools.tools],
        "job": job,
        "progress": progress,
        "picture": [block.type for block in picture.content],
        "blob": len(file.blob),
    }


async def cancel(client):
    """Cancels a call once its code runs."""
    begun = asyncio.Event()

    async def on_progress(done, total, message):
        if "running\n" in message and "begun" in message:
            begun.set()

    program = "import time\nprint('begun', flush=True)\ntime.sleep(120)"
    call = asyncio.create_task(
        client.call_tool("execute_code", {"code": program}, progress_callback=on_progress)
    )
    await begun.wait()
    call.cancel()
    try:
        await call
    except asyncio.CancelledError:
        return "cancelled"


async def main():
    async with Client(target(), mode=mode) as client:
        found = await {"run": run, "cancel": cancel}[task](client)
        print(json.dumps(found), flush=True)
        # A client that ends would end its calls too.
        if task == "cancel":
            await asyncio.to_thread(sys.stdin.readline)


asyncio.run(main())
