"""Answers the calls of functions of this program."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, cast

from ..errors import AirlockError, ProblemError
from ..event import JobEventData
from ..transport.transport import Transport
from .describe import AnyTool, describe


class Tools(List[AnyTool]):
    """Answers the calls of its functions, one after the other, in the thread that follows the job."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        super().__init__(tools)
        self.functions = {
            cast(str, describe(tool)["name"]): tool for tool in self if callable(tool)
        }

    def take(self, transport: Transport, job_id: str, call: JobEventData) -> None:
        function = self.functions.get(call.name or "")
        if function is None:
            return
        try:
            answer = {"result": function(**(call.arguments or {}))}
        except Exception as error:
            answer = failure(error)
        post(transport, job_id, call, answer)


def failure(error: Exception) -> Dict[str, Any]:
    """What the code gets of an exception."""
    text = f"{type(error).__name__}: {error}"
    return {"error": text.encode("utf-8", "replace").decode()}


def post(
    transport: Transport, job_id: str, call: JobEventData, answer: Dict[str, Any]
) -> None:
    path = f"/jobs/{job_id}/tool-calls/{call.number}"
    try:
        transport.send("POST", path, body=answer)
    except ProblemError as error:
        # It has this answer already, or the job has ended.
        if error.code == "conflict":
            return
        if error.code != "too_large":
            raise
        post(transport, job_id, call, {"error": "The result is larger than an answer may be."})
    except AirlockError as error:
        if not isinstance(error.__cause__, (TypeError, ValueError, RecursionError)):
            raise
        post(transport, job_id, call, {"error": f"The result is no JSON: {error.__cause__}"})
