"""What a request says of functions that the code of a job can call."""

from __future__ import annotations

import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Literal,
    Mapping,
    Optional,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from ..types import Tool

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
