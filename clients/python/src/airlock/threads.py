"""Calls of the sync client from asyncio, each in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Optional,
    Set,
    TypeVar,
)

from .cancel import Cancel
from .client import Airlock
from .errors import AirlockError
from .events import JobEventData
from .events import OnOutput as OnOutputInThread
from .tools import AnyTool, Tools, failure, post
from .transport import Transport

Result = TypeVar("Result")
#: A function or a coroutine function. It runs in the event loop.
OnOutput = Callable[[str], Any]

# A cancelled call ends at once. A cancelled run first cancels its job, unless the service does not answer.
_CANCEL_S = 8


async def call(client: Airlock, work: Callable[[Airlock], Result]) -> Result:
    """The result of the work. Cancelling closes its socket."""
    cancel = Cancel()
    return await _in_thread(lambda: work(client.with_options(cancel=cancel)), cancel)


async def iterate(
    client: Airlock, work: Callable[[Airlock], Iterator[Result]]
) -> AsyncIterator[Result]:
    cancel = Cancel()
    end: Any = object()
    results = work(client.with_options(cancel=cancel))
    try:
        while True:
            result = await _in_thread(lambda: next(results, end), cancel)
            if result is end:
                return
            yield result
    finally:
        cancel.cancel()


def in_loop(on_output: Optional[OnOutput]) -> Optional[OnOutputInThread]:
    """The same function, or coroutine function, to be called in another thread. It runs in the event loop."""
    if on_output is None:
        return None
    loop = asyncio.get_running_loop()

    async def run(text: str) -> None:
        answer = on_output(text)
        if inspect.isawaitable(answer):
            await answer

    return lambda text: asyncio.run_coroutine_threadsafe(run(text), loop).result()


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
                answer = {"result": await _in_thread(lambda: function(**given), Cancel())}
        except Exception as error:
            answer = failure(error)
        try:
            await _in_thread(lambda: post(transport, job_id, call, answer), Cancel())
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


async def _in_thread(work: Callable[[], Result], cancel: Cancel) -> Result:
    """Starts a thread for each call: waits would fill the few threads of the executor."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Any, error: Optional[BaseException]) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result: Any = None
        failure: Optional[BaseException] = None
        try:
            result = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            # The event loop is closed: nobody waits for the result.
            pass

    threading.Thread(target=run, daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel.cancel()
        # A run cancels its job before it ends.
        await asyncio.wait([done], timeout=_CANCEL_S)
        if done.done() and not done.cancelled():
            done.exception()
        raise
