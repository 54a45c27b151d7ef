"""What a program is told of a job while it runs."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Sequence

from ..record import shape
from ..tools.answer import Tools
from ..tools.describe import AnyTool
from ..transport.transport import Transport
from ..types import ResultItem
from .stream import stream

#: Gets the output of a job as it happens, in pieces of any length.
OnOutput = Callable[[str], object]
#: Gets each value that the code shows.
OnResult = Callable[[ResultItem], object]


class Callbacks(NamedTuple):
    """What a program is told, and its functions that the code calls."""

    on_stdout: Optional[OnOutput] = None
    on_stderr: Optional[OnOutput] = None
    on_result: Optional[OnResult] = None
    tools: Sequence[AnyTool] = ()


def follow(transport: Transport, job_id: str, until: float, callbacks: Callbacks) -> None:
    """Calls them until the job ends or the time is up."""
    on_stdout, on_stderr, on_result, given = callbacks
    tools = given if isinstance(given, Tools) else Tools(given)
    if not (on_stdout or on_stderr or on_result or tools.functions):
        return
    for event in stream(transport, job_id, None, until):
        if event.event == "tool_call":
            tools.take(transport, job_id, event.data)
        elif event.event == "display" and on_result:
            on_result(shape(ResultItem, event.data))
        elif event.event == "stdout" and on_stdout:
            on_stdout(event.data.text or "")
        elif event.event == "stderr" and on_stderr:
            on_stderr(event.data.text or "")
