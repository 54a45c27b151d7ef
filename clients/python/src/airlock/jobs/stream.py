"""The events of a job."""

from __future__ import annotations

import json
import math
import socket
import time
from http.client import HTTPResponse
from typing import Iterator, Optional

from ..errors import AirlockError, ConnectionError, lasting
from ..event import JobEvent
from ..record import shape
from ..transport.retries import is_worth_repeating, pause_s
from ..transport.transport import Transport

# The service sends an empty line after 15 s in which nothing happened.
_IDLE_S = 30.0
_TYPE = "application/x-ndjson"


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
