"""Uses the package sandbox-fusion as its documentation shows, and prints what it was told as JSON."""

import asyncio
import json
import sys

from sandbox_fusion import (
    RunCodeRequest,
    RunJupyterRequest,
    run_code,
    run_code_async,
    run_concurrent,
    run_jupyter,
    set_endpoint,
)

set_endpoint(sys.argv[1])
python = [RunCodeRequest(code="print(%d)" % n, language="python", run_timeout=60) for n in range(128)]


def told(answer):
    ran = answer.run_result
    return [answer.status.value, ran and ran.status.value, ran and ran.return_code, ran and ran.stdout]


async def gathered():
    return [told(answer) for answer in await asyncio.gather(*map(run_code_async, python[:16]))]


def notebook():
    told = run_jupyter(RunJupyterRequest(cells=["x = 6", "1 / 0", "x * 7"], total_timeout=60))
    cells = [[cell.display, [error["ename"] for error in cell.error]] for cell in told.cells]
    return [told.status.value, told.driver.status.value, cells]


print(
    json.dumps(
        {
            "bash": told(run_code(RunCodeRequest(code="echo $((6 * 7)); exit 3", language="bash"))),
            "late": told(run_code(RunCodeRequest(code="while True: pass", language="python", run_timeout=1))),
            "jupyter": notebook(),
            "async": asyncio.run(gathered()),
            "concurrent": [told(each) for each in run_concurrent(run_code, args=[[each] for each in python], concurrency=128)],
        }
    )
)
