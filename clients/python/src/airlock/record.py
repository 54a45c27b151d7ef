"""Answers of the service: dicts whose fields are also attributes. The events of a job, too."""

from __future__ import annotations

import functools
import html
import json
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    List,
    Optional,
    Type,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

_FRAME = "width: 100%; height: 20em; border: 0; background: white"



class Record(Dict[str, Any]):
    """An object of an answer: ``record["status"]`` and ``record.status`` are the same.

    A field that the service left out is None as an attribute.
    """

    if not TYPE_CHECKING:
        # Type checkers know the fields of each class, and so find a wrong name.
        def __getattr__(self, name: str) -> Any:
            if name in self:
                return self[name]
            if name in fields_of(type(self)):
                return None
            raise AttributeError(f"{type(self).__name__} has no field {name!r}.")

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *fields_of(type(self)), *self})


class Shown(Record):
    """A value that the code showed. A notebook shows it, too."""

    def _repr_mimebundle_(self, **_: Any) -> Dict[str, Any]:
        """What the code may have made runs no script in the notebook: HTML is in a frame that forbids it."""
        data: Dict[str, Any] = dict(self["data"])
        data.pop("application/javascript", None)
        if "application/json" in data:
            data["application/json"] = json.loads(data["application/json"])
        if "text/html" in data:
            page = html.escape(data["text/html"])
            data["text/html"] = f'<iframe sandbox srcdoc="{page}" style="{_FRAME}"></iframe>'
        return data


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


Kind = TypeVar("Kind", bound=Record)


def shape(kind: Type[Kind], value: Dict[str, Any]) -> Kind:
    """The value as a record of this class, and its parts as records of their classes."""
    fields = fields_of(kind)
    return kind((name, _shape(fields.get(name), one)) for name, one in value.items())


def _shape(hint: Any, value: Any) -> Any:
    """The user's own data has no class, and stays as it is."""
    if isinstance(value, list):
        return [_shape(hint, one) for one in cast(List[Any], value)]
    kinds = _records_in(hint)
    if not kinds or not isinstance(value, dict):
        return value
    given = cast(Dict[str, Any], value)
    return shape(max(kinds, key=lambda kind: len(fields_of(kind).keys() & given.keys())), given)


def _records_in(hint: Any) -> List[Type[Record]]:
    """The classes in ``X``, ``Optional[X]``, ``List[X]`` and ``List[Union[X, Y]]``."""
    if isinstance(hint, type) and issubclass(hint, Record):
        return [hint]
    return [kind for part in get_args(hint) for kind in _records_in(part)]


@functools.lru_cache(maxsize=None)
def fields_of(kind: Type[Record]) -> Dict[str, Any]:
    return get_type_hints(kind)
