"""Sessions for asyncio."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, AsyncIterator, Callable, List, Optional, TypeVar, Union

from .client import Airlock
from .files import FileBody
from .sessions import OpenSession
from .threads import OnOutput, ToolsInLoop, call, in_loop, iterate
from .types import (
    CallRequestOptional,
    ExecutionRecord,
    Interrupted,
    Session,
    SessionContext,
    SessionFile,
    SessionPatch,
    SessionRequest,
    SessionStatus,
    SubmittedJob,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

Result = TypeVar("Result")


class AsyncSessions:
    """See :class:`airlock.sessions.Sessions`."""

    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def create(self, **fields: Unpack[SessionRequest]) -> AsyncOpenSession:
        session = await call(self._client, lambda it: it.sessions.create(**fields))
        return self.attach(session.id)

    def attach(self, session_id: str) -> AsyncOpenSession:
        return AsyncOpenSession(self._client, session_id)

    async def get(self, session_id: str) -> Session:
        return await call(self._client, lambda it: it.sessions.get(session_id))

    def list(
        self, *, status: Optional[SessionStatus] = None, limit: Optional[int] = None
    ) -> AsyncIterator[Session]:
        return iterate(self._client, lambda it: it.sessions.list(status=status, limit=limit))


class AsyncOpenSession:
    """See :class:`airlock.OpenSession`. Cancelling a call interrupts its code."""

    def __init__(self, client: Airlock, session_id: str) -> None:
        self._client = client
        self.id = session_id
        self.files = AsyncSessionFiles(self)
        self.contexts = AsyncContexts(self)

    async def __aenter__(self) -> AsyncOpenSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncOpenSession {self.id} of {self._client.url}>"

    async def call(self, work: Callable[[OpenSession], Result]) -> Result:
        """The same call of the sync session, without blocking the loop."""
        return await call(self._client, lambda it: work(it.sessions.attach(self.id)))

    async def run(
        self,
        code: Optional[str] = None,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        wait_s: float = math.inf,
        **fields: Unpack[CallRequestOptional],
    ) -> ExecutionRecord:
        """All ``tools`` whose calls wait run at once, as in :meth:`airlock.AsyncAirlock.run`."""
        out, err = in_loop(on_stdout), in_loop(on_stderr)
        async with ToolsInLoop(fields.get("tools") or ()) as tools:
            if tools:
                fields["tools"] = tools
            return await self.call(
                lambda it: it.run(code, on_stdout=out, on_stderr=err, wait_s=wait_s, **fields)
            )

    async def submit(
        self, code: Optional[str] = None, **fields: Unpack[CallRequestOptional]
    ) -> SubmittedJob:
        return await self.call(lambda it: it.submit(code, **fields))

    async def restart(self, context: Optional[str] = None) -> ExecutionRecord:
        return await self.call(lambda it: it.restart(context))

    async def interrupt(self) -> Interrupted:
        return await self.call(lambda it: it.interrupt())

    async def info(self) -> Session:
        return await self.call(lambda it: it.info())

    async def update(self, **fields: Unpack[SessionPatch]) -> Session:
        return await self.call(lambda it: it.update(**fields))

    async def close(self) -> None:
        await self.call(lambda it: it.close())


class AsyncSessionFiles:
    """See :class:`airlock.sessions.SessionFiles`."""

    def __init__(self, session: AsyncOpenSession) -> None:
        self._session = session

    async def write(self, path: str, body: Union[FileBody, str]) -> None:
        await self._session.call(lambda it: it.files.write(path, body))

    async def read(self, path: str) -> bytes:
        return await self._session.call(lambda it: it.files.read(path))

    async def save(self, path: str, to: Union[str, PathLike[str]]) -> None:
        await self._session.call(lambda it: it.files.save(path, to))

    async def list(self, path: str = "") -> List[SessionFile]:
        return await self._session.call(lambda it: it.files.list(path))

    async def delete(self, path: str) -> None:
        await self._session.call(lambda it: it.files.delete(path))


class AsyncContexts:
    """See :class:`airlock.sessions.Contexts`."""

    def __init__(self, session: AsyncOpenSession) -> None:
        self._session = session

    async def create(self) -> SessionContext:
        return await self._session.call(lambda it: it.contexts.create())

    async def list(self) -> List[SessionContext]:
        return await self._session.call(lambda it: it.contexts.list())

    async def delete(self, context_id: str) -> None:
        await self._session.call(lambda it: it.contexts.delete(context_id))
