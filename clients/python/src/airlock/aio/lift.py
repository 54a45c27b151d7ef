"""Makes the async calls from the sync ones: each runs in a thread of its own."""

from __future__ import annotations

import functools
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Generic,
    Iterator,
    TypeVar,
    cast,
)

from ..client import Airlock
from ..transport.cancel import Cancel
from .threads import in_loop, in_thread
from .tools import ToolsInLoop

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    Given = ParamSpec("Given")

Sync = TypeVar("Sync")
Result = TypeVar("Result")


class Lifted(Generic[Sync]):
    """What is like a part of the sync client, for asyncio. Cancelling a call closes its socket."""

    def __init__(self, client: Airlock, part: Callable[[Airlock], Sync]) -> None:
        self._client = client
        self._part = part

    async def call(self, work: Callable[[Sync], Result]) -> Result:
        """What calls of the sync part answer, without blocking the loop."""
        cancel = Cancel()
        part = self._part(self._client.with_options(cancel=cancel))
        return await in_thread(lambda: work(part), cancel)

    async def iterate(self, work: Callable[[Sync], Iterator[Result]]) -> AsyncIterator[Result]:
        cancel = Cancel()
        end: Any = object()
        results = work(self._part(self._client.with_options(cancel=cancel)))
        try:
            while True:
                result = await in_thread(lambda: next(results, end), cancel)
                if result is end:
                    return
                yield result
        finally:
            cancel.cancel()


def awaited(
    method: Callable[Concatenate[Sync, Given], Result],
) -> Callable[Concatenate[Lifted[Sync], Given], Coroutine[Any, Any, Result]]:
    """The method as a coroutine function."""

    @functools.wraps(method)
    async def run(part: Lifted[Sync], /, *args: Given.args, **fields: Given.kwargs) -> Result:
        return await part.call(lambda it: method(it, *args, **fields))

    return run


def followed(
    method: Callable[Concatenate[Sync, Given], Result],
) -> Callable[Concatenate[Lifted[Sync], Given], Coroutine[Any, Any, Result]]:
    """The same for a method with callbacks and tools. Coroutine functions run in the event loop, and so do callbacks."""
    work = cast(Callable[..., Result], method)

    @functools.wraps(method)
    async def run(part: Lifted[Sync], /, *args: Given.args, **fields: Given.kwargs) -> Result:
        given = {
            name: in_loop(cast(Any, value)) if name.startswith("on_") and value else value
            for name, value in fields.items()
        }
        async with ToolsInLoop(cast(Any, given.pop("tools", None)) or ()) as tools:
            if tools:
                given["tools"] = tools
            return await part.call(lambda it: work(it, *args, **given))

    return run


def iterated(
    method: Callable[Concatenate[Sync, Given], Iterator[Result]],
) -> Callable[Concatenate[Lifted[Sync], Given], AsyncIterator[Result]]:
    """The same for a method that answers with an iterator."""

    @functools.wraps(method)
    def run(
        part: Lifted[Sync], /, *args: Given.args, **fields: Given.kwargs
    ) -> AsyncIterator[Result]:
        return part.iterate(lambda it: method(it, *args, **fields))

    return run
