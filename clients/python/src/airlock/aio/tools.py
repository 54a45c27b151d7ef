"""Tools whose calls are answered from the event loop."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Callable, Coroutine, Iterable, Optional, Set

from ..errors import AirlockError
from ..event import JobEventData
from ..tools.answer import Tools, failure, post
from ..tools.describe import AnyTool
from ..transport.cancel import Cancel
from ..transport.transport import Transport
from .threads import in_thread


class ToolsInLoop(Tools):
    """Answers all calls that wait at once: coroutine functions run in the event loop, others in threads."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        super().__init__(tools)
        self._loop = asyncio.get_running_loop()
        self._tasks: Set[asyncio.Task[None]] = set()
        self._error: Optional[AirlockError] = None

    def take(self, transport: Transport, job_id: str, call: JobEventData) -> None:
        function = self.functions.get(call.name or "")
        if function is not None:
            answer = self._answer(function, transport, job_id, call)
            self._loop.call_soon_threadsafe(self._begin, answer)

    def _begin(self, answer: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(answer)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, function: Callable[..., Any], transport: Transport, job_id: str, call: JobEventData
    ) -> None:
        given = call.arguments or {}
        try:
            if inspect.iscoroutinefunction(function):
                answer = {"result": await function(**given)}
            else:
                answer = {"result": await in_thread(lambda: function(**given), Cancel())}
        except Exception as error:
            answer = failure(error)
        try:
            await in_thread(lambda: post(transport, job_id, call, answer), Cancel())
        except AirlockError as error:
            # The code would wait in vain.
            self._error = error
            transport.cancel.cancel()

    async def __aenter__(self) -> ToolsInLoop:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._error:
            raise self._error
