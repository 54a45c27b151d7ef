"""The events of a job."""

from __future__ import annotations

import http.client
import json
from typing import Any, Dict, Iterator, Optional, TypedDict

from .errors import ConnectionError
from .transport import Transport, pause_s


class _WithId(TypedDict, total=False):
    id: str


class JobEvent(_WithId):
    """What happens to a job. Newer services may send other events: ignore what you do not know."""

    event: str
    data: Dict[str, Any]


def stream(transport: Transport, job_id: str, after: Optional[str]) -> Iterator[JobEvent]:
    path = f"/jobs/{job_id}/events"
    breaks = 0
    while True:
        lines = transport.open(path, {"after": after}, {"Accept": "application/x-ndjson"})
        is_fruitless = True
        try:
            with lines as answer:
                # The cursor is that of the end.
                if answer.status == 204:
                    return
                for line in _lines(answer):
                    is_fruitless = False
                    if not line:
                        breaks = 0
                        continue
                    event = _parse(line)
                    breaks = 0
                    after = event.get("id", after)
                    yield event
                    if event["event"] == "end":
                        return
            if is_fruitless:
                raise ConnectionError("The events ended before the job's end.")
        except ConnectionError:
            breaks += 1
            if breaks > transport.retries:
                raise
        transport.cancel.sleep(pause_s(max(1, breaks)))


def _parse(line: bytes) -> JobEvent:
    try:
        return json.loads(line)
    except ValueError:
        raise ConnectionError("The events are not those of Airlock: check the address.") from None


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines of a body. A last line without its end is not whole, and left out."""
    rest = b""
    while True:
        part = answer.read1(65536)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
