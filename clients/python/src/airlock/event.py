"""The events of a job, as :meth:`airlock.Airlock.stream` gives them."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .record import Record


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
