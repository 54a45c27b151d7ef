"""The events of a job."""

from __future__ import annotations

import json
import math
import socket
import time
from http.client import HTTPResponse
from typing import Any, Callable, Dict, Iterator, Optional

from .errors import AirlockError, ConnectionError, lasting
from .record import Record, shape
from .retries import is_worth_repeating, pause_s
from .tools import Tools
from .transport import Transport

#: Gets the output of a job as it happens, in pieces of any length.
OnOutput = Callable[[str], object]

# The service sends an empty line after 15 s in which nothing happened.
_IDLE_S = 30.0
_TYPE = "application/x-ndjson"


class JobEventData(Record):
    """docs/guides/live-output.md says which of these each event has."""

    job_id: str
    attempt: int
    at: str
    status: Optional[str]
    #: Why a queued job waits.
    reason: Optional[str]
    position: Optional[int]
    #: Name of the agent that runs it.
    agent: Optional[str]
    #: Output.
    text: Optional[str]
    #: ``stdout`` or ``stderr``.
    stream: Optional[str]
    #: What the code showed, by MIME type; ``number`` and ``main`` are those of a ResultItem.
    data: Optional[Dict[str, str]]
    number: Optional[int]
    main: Optional[bool]
    #: A call of a tool: ``number`` names it.
    name: Optional[str]
    arguments: Optional[Dict[str, Any]]


class JobEvent(Record):
    """What happens to a job. Newer services may send other events: ignore what you do not know."""

    #: Give it as ``after`` to continue. An event that may come again has none.
    id: Optional[str]
    event: str
    data: JobEventData


def stream(
    transport: Transport, job_id: str, after: Optional[str], until: float = math.inf
) -> Iterator[JobEvent]:
    """The events up to ``end``, or those that came before the time was up."""
    path = f"/jobs/{job_id}/events"
    breaks = 0
    while True:
        is_fruitless = True
        failure: Optional[AirlockError] = None
        try:
            once = transport.change(retries=0, timeout=_limit(transport.timeout, until))
            with once.open(path, {"after": after}, {"Accept": _TYPE}) as (answer, sock):
                # The cursor is that of the end.
                if answer.status == 204:
                    return
                for line in _lines(answer, sock, transport.timeout, until):
                    is_fruitless = False
                    breaks = 0
                    if not line:
                        continue
                    event = _parse(line)
                    after = event.id or after
                    yield event
                    if event.event == "end":
                        return
            if is_fruitless:
                raise ConnectionError("The events ended before the job's end.")
        except AirlockError as error:
            breaks += 1
            if not is_worth_repeating(error, True):
                raise
            if breaks > transport.retries and time.monotonic() < until:
                raise
            failure = error
        if time.monotonic() >= until:
            return
        transport.cancel.sleep(min(pause_s(max(1, breaks), failure), until - time.monotonic()))


def follow(
    transport: Transport,
    job_id: str,
    until: float,
    calls: Dict[str, Optional[OnOutput]],
    tools: Tools,
) -> None:
    """Calls the callbacks for each piece of output, and the functions that the code calls, until the job ends or the
    time is up."""
    for event in stream(transport, job_id, None, until):
        if event.event == "tool_call":
            tools.take(transport, job_id, event.data)
        call = calls.get(event.event)
        if call:
            call(event.data.text or "")


def _limit(timeout: float, until: float) -> float:
    """Limits each try to the time that is left."""
    left_s = max(0.1, until - time.monotonic())
    return min(timeout or math.inf, left_s) if left_s < math.inf else timeout


def _parse(line: bytes) -> JobEvent:
    try:
        event = json.loads(line)
        return shape(JobEvent, {**event, "event": event["event"]})
    except (ValueError, TypeError, KeyError):
        raise lasting("The answer has no events of Airlock: check the address.") from None


def _lines(
    answer: HTTPResponse, sock: socket.socket, timeout: float, until: float
) -> Iterator[bytes]:
    """The lines of a body. A last line without its end is not whole, and left out."""
    rest = b""
    while True:
        sock.settimeout(_limit(timeout and max(timeout, _IDLE_S), until) or None)
        part = answer.read1(65536)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
