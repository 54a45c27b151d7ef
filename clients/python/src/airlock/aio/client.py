"""The same client for asyncio."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, AsyncGenerator, Optional

from ..client import Airlock, connect
from ..types import SessionRequest
from .lift import Lifted, awaited, followed, iterated
from .parts import (
    AsyncArtifacts,
    AsyncBatches,
    AsyncDeadLetters,
    AsyncFiles,
    AsyncKeys,
    AsyncTenants,
)
from .sessions import AsyncOpenSession, AsyncSessions

if TYPE_CHECKING:
    from typing_extensions import Unpack


def connect_async(
    url: Optional[str] = None,
    key: Optional[str] = None,
    *,
    tenant: Optional[str] = None,
    retries: int = 6,
    timeout: float = 60.0,
) -> AsyncAirlock:
    """See :func:`airlock.connect`."""
    return AsyncAirlock(connect(url, key, tenant=tenant, retries=retries, timeout=timeout))


class AsyncAirlock(Lifted[Airlock]):
    """The calls of :class:`airlock.Airlock`. Cancelling one closes its socket; cancelling ``run`` cancels its job.

    All ``tools`` whose calls wait run at once: coroutine functions in the event loop, which the code awaits, others
    in threads. Callbacks run in the event loop; they may be coroutine functions.
    """

    def __init__(self, client: Airlock) -> None:
        super().__init__(client, lambda it: it)
        self.files = AsyncFiles(client, lambda it: it.files)
        self.artifacts = AsyncArtifacts(client, lambda it: it.artifacts)
        self.sessions = AsyncSessions(client, lambda it: it.sessions)
        self.batches = AsyncBatches(client, lambda it: it.batches)
        self.dead_letters = AsyncDeadLetters(client, lambda it: it.dead_letters)
        self.keys = AsyncKeys(client, lambda it: it.keys)
        self.tenants = AsyncTenants(client, lambda it: it.tenants)

    async def __aenter__(self) -> AsyncAirlock:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Does nothing: no connection is open between two calls."""

    def __repr__(self) -> str:
        return f"<AsyncAirlock {self.url}>"

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._client.url

    def with_options(
        self,
        *,
        tenant: Optional[str] = None,
        retries: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> AsyncAirlock:
        """The same client with other options."""
        client = self._client.with_options(tenant=tenant, retries=retries, timeout=timeout)
        return AsyncAirlock(client)

    @asynccontextmanager
    async def session(
        self, **fields: Unpack[SessionRequest]
    ) -> AsyncGenerator[AsyncOpenSession, None]:
        """``async with client.session() as session:`` ends it with the block.

        ``await client.sessions.create()`` makes one that outlives it.
        """
        async with await self.sessions.create(**fields) as session:
            yield session

    run = followed(Airlock.run)
    submit = awaited(Airlock.submit)
    wait = followed(Airlock.wait)
    get = awaited(Airlock.get)
    list = iterated(Airlock.list)
    cancel = awaited(Airlock.cancel)
    rerun = awaited(Airlock.rerun)
    fork = awaited(Airlock.fork)
    stream = iterated(Airlock.stream)
    batch = awaited(Airlock.batch)
    usage = awaited(Airlock.usage)
    audit = iterated(Airlock.audit)
    request = awaited(Airlock.request)
