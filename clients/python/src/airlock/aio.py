"""The same client for asyncio: each call is the sync one in a thread of its own."""

from __future__ import annotations

import asyncio
import math
import threading
from os import PathLike
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    List,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from .cancel import Cancel
from .client import Airlock, connect
from .events import JobEvent
from .types import (
    Artifact,
    AsyncSubmitRequest,
    AsyncSubmitRequestOptional,
    ExecutionRecord,
    JobStatus,
    SubmittedBatch,
    SubmittedJob,
    UploadedFile,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Result = TypeVar("Result")


def connect_async(
    url: Optional[str] = None,
    key: Optional[str] = None,
    *,
    retries: int = 6,
    timeout: float = 60.0,
) -> AsyncAirlock:
    """See :func:`airlock.connect`."""
    return AsyncAirlock(connect(url, key, retries=retries, timeout=timeout))


class AsyncAirlock:
    """See :class:`airlock.Airlock`. Cancelling a call closes its socket."""

    def __init__(self, client: Airlock) -> None:
        self._client = client
        self.files = AsyncFiles(client)
        self.artifacts = AsyncArtifacts(client)

    @property
    def url(self) -> str:
        return self._client.url

    async def run(
        self, code: str, *, wait_s: float = math.inf, **fields: Unpack[AsyncSubmitRequestOptional]
    ) -> ExecutionRecord:
        return await _call(self._client, lambda it: it.run(code, wait_s=wait_s, **fields))

    async def submit(
        self, code: str, **fields: Unpack[AsyncSubmitRequestOptional]
    ) -> SubmittedJob:
        return await _call(self._client, lambda it: it.submit(code, **fields))

    async def wait(self, job_id: str, *, wait_s: float = math.inf) -> ExecutionRecord:
        return await _call(self._client, lambda it: it.wait(job_id, wait_s=wait_s))

    async def cancel(self, job_id: str) -> JobStatus:
        return await _call(self._client, lambda it: it.cancel(job_id))

    async def stream(
        self, job_id: str, *, after: Optional[str] = None
    ) -> AsyncIterator[JobEvent]:
        cancel = Cancel()
        events = self._client.with_options(cancel=cancel).stream(job_id, after=after)
        try:
            while True:
                event = await _in_thread(lambda: next(events, None), cancel)
                if event is None:
                    return
                yield event
        finally:
            cancel.cancel()

    async def batch(
        self, jobs: Sequence[Union[str, AsyncSubmitRequest]], *, atomic: bool = False
    ) -> SubmittedBatch:
        return await _call(self._client, lambda it: it.batch(jobs, atomic=atomic))

    async def request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
    ) -> Any:
        return await _call(self._client, lambda it: it.request(method, path, query, body))


class AsyncFiles:
    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def upload(self, name: str, body: Union[bytes, str, PathLike[str]]) -> UploadedFile:
        return await _call(self._client, lambda it: it.files.upload(name, body))

    async def list(self) -> List[UploadedFile]:
        return await _call(self._client, lambda it: it.files.list())

    async def get(self, file_id: str) -> bytes:
        return await _call(self._client, lambda it: it.files.get(file_id))

    async def delete(self, file_id: str) -> None:
        await _call(self._client, lambda it: it.files.delete(file_id))


class AsyncArtifacts:
    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def list(self, job_id: str) -> List[Artifact]:
        return await _call(self._client, lambda it: it.artifacts.list(job_id))

    async def get(self, job_id: str, name: str) -> bytes:
        return await _call(self._client, lambda it: it.artifacts.get(job_id, name))


async def _call(client: Airlock, work: Callable[[Airlock], Result]) -> Result:
    cancel = Cancel()
    return await _in_thread(lambda: work(client.with_options(cancel=cancel)), cancel)


async def _in_thread(work: Callable[[], Result], cancel: Cancel) -> Result:
    """A thread of its own: waits would fill the executor's few."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Any, error: Optional[BaseException]) -> None:
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
        loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel.cancel()
        # A run cancels its job before it ends.
        await asyncio.wait([done])
        if not done.cancelled():
            done.exception()
        raise
