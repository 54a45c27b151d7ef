"""Work in threads, for the event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, Callable, Optional, TypeVar

from ..transport.cancel import Cancel

Result = TypeVar("Result")

# A cancelled call ends at once. A cancelled run first cancels its job, unless the service does not answer.
_CANCEL_S = 8


def in_loop(function: Callable[[Any], Any]) -> Callable[[Any], object]:
    """The same function, or coroutine function, to be called in another thread. It runs in the event loop."""
    loop = asyncio.get_running_loop()

    async def run(given: Any) -> None:
        answer = function(given)
        if inspect.isawaitable(answer):
            await answer

    return lambda given: asyncio.run_coroutine_threadsafe(run(given), loop).result()


async def in_thread(work: Callable[[], Result], cancel: Cancel) -> Result:
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
