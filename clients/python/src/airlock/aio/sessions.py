"""Sessions for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..client import Airlock
from ..sessions.contents import Contexts, SessionFiles
from ..sessions.open_session import OpenSession
from ..sessions.sessions import Sessions
from ..types import SessionRequest
from .lift import Lifted, awaited, followed, iterated

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncSessions(Lifted[Sessions]):
    """Makes sessions, and finds existing ones."""

    async def create(self, **fields: Unpack[SessionRequest]) -> AsyncOpenSession:
        """See :meth:`airlock.sessions.sessions.Sessions.create`."""
        return self.attach(await self.call(lambda it: it.create(**fields).id))

    def attach(self, session_id: str) -> AsyncOpenSession:
        """An existing session. Sends no request."""
        return AsyncOpenSession(self._client, session_id)

    get = awaited(Sessions.get)
    list = iterated(Sessions.list)


class AsyncSessionFiles(Lifted[SessionFiles]):
    """Files of a session, in the order of its calls. Paths are relative to its working directory, /output."""

    write = awaited(SessionFiles.write)
    read = awaited(SessionFiles.read)
    save = awaited(SessionFiles.save)
    list = awaited(SessionFiles.list)
    delete = awaited(SessionFiles.delete)


class AsyncContexts(Lifted[Contexts]):
    """The interpreters of a session. Each has variables of its own; files are shared."""

    create = awaited(Contexts.create)
    list = awaited(Contexts.list)
    delete = awaited(Contexts.delete)


class AsyncOpenSession(Lifted[OpenSession]):
    """A session. Its calls run one at a time, in order. An ``async with`` block closes it.

    Cancelling a call interrupts its code. All ``tools`` whose calls wait run at once.
    """

    def __init__(self, client: Airlock, session_id: str) -> None:
        def attach(client: Airlock) -> OpenSession:
            return client.sessions.attach(session_id)

        super().__init__(client, attach)
        self.id = session_id
        self.files = AsyncSessionFiles(client, lambda it: attach(it).files)
        self.contexts = AsyncContexts(client, lambda it: attach(it).contexts)

    async def __aenter__(self) -> AsyncOpenSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncOpenSession {self.id} of {self._client.url}>"

    run = followed(OpenSession.run)
    submit = awaited(OpenSession.submit)
    restart = awaited(OpenSession.restart)
    interrupt = awaited(OpenSession.interrupt)
    info = awaited(OpenSession.info)
    update = awaited(OpenSession.update)
    close = awaited(OpenSession.close)
