"""Functions of this program that the code of a job can call: what a request says of them, and their answers."""

from __future__ import annotations

import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Literal,
    Mapping,
    Optional,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import AirlockError, ProblemError
from .record import JobEventData
from .transport import Transport

if TYPE_CHECKING:
    from .types import Tool

#: A function, or what a request says of one that somebody else answers.
AnyTool = Union["Tool", Callable[..., Any]]

_NAMES: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}


def given(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a request that are not None. Functions become what a request says of them."""
    found = {name: value for name, value in fields.items() if value is not None}
    if "tools" in found:
        found["tools"] = [describe(tool) for tool in found["tools"]]
    return found


def describe(tool: AnyTool) -> Mapping[str, Any]:
    """A tool as the service takes it: name, docstring and parameters of a function."""
    if not callable(tool):
        return tool
    name: Optional[str] = getattr(tool, "__name__", None)
    if name is None:
        raise TypeError(f"{tool!r} has no name: give a function.")
    doc = inspect.getdoc(tool)
    return {
        "name": name,
        **({"description": doc} if doc else {}),
        "parameters": _parameters_of(tool),
        **({"awaitable": True} if inspect.iscoroutinefunction(tool) else {}),
    }


def _parameters_of(function: Callable[..., Any]) -> Dict[str, Any]:
    try:
        hints = get_type_hints(function)
    except Exception:
        # A name in an annotation that is known to type checkers alone.
        hints = {}
    properties: Dict[str, Any] = {}
    required: List[str] = []
    takes_more = False
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL):
            raise TypeError(f"{name} of a tool must be a parameter that can be given by name.")
        if one.kind == one.VAR_KEYWORD:
            takes_more = True
            continue
        properties[name] = schema_of(hints.get(name, Any))
        if one.default is one.empty:
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": takes_more,
    }


def schema_of(hint: Any) -> Dict[str, Any]:
    """A JSON Schema of what a type hint says; empty where it says nothing that JSON knows."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return {"enum": list(parts)}
    if kind is Union or type(hint).__name__ == "UnionType":
        return {"anyOf": [schema_of(part) for part in parts]}
    name = _NAMES.get(kind) if isinstance(kind, type) else None
    if name is None:
        return {}
    items = schema_of(parts[0]) if kind is list and parts else None
    return {"type": name, **({"items": items} if items else {})}


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
