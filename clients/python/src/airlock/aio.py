"""The same client for asyncio."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    AsyncIterator,
    Mapping,
    Optional,
    Sequence,
    Union,
)

from .aio_parts import (
    AsyncArtifacts,
    AsyncBatches,
    AsyncDeadLetters,
    AsyncFiles,
    AsyncKeys,
    AsyncTenants,
)
from .aio_sessions import AsyncOpenSession, AsyncSessions
from .client import Airlock, connect
from .events import JobEvent
from .threads import OnOutput, ToolsInLoop, call, in_loop, iterate
from .tools import AnyTool
from .types import (
    AsyncSubmitRequest,
    AsyncSubmitRequestOptional,
    AuditAction,
    AuditEntry,
    DerivedJob,
    ExecutionRecord,
    ExecutionStatus,
    ForkRequestOptional,
    JobStatus,
    RerunRequest,
    SessionRequest,
    SubmittedBatch,
    SubmittedJob,
    Usage,
)

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


class AsyncAirlock:
    """See :class:`airlock.Airlock`. Cancelling a call closes its socket."""

    def __init__(self, client: Airlock) -> None:
        self._client = client
        self.files = AsyncFiles(client)
        self.artifacts = AsyncArtifacts(client)
        self.sessions = AsyncSessions(client)
        self.batches = AsyncBatches(client)
        self.dead_letters = AsyncDeadLetters(client)
        self.keys = AsyncKeys(client)
        self.tenants = AsyncTenants(client)

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

    async def run(
        self,
        code: str,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        wait_s: float = math.inf,
        **fields: Unpack[AsyncSubmitRequestOptional],
    ) -> ExecutionRecord:
        """See :meth:`airlock.Airlock.run`. Cancelling it cancels the job.

        All ``tools`` whose calls wait run at once: coroutine functions in the event loop, which the code awaits, others
        in threads.
        """
        out, err = in_loop(on_stdout), in_loop(on_stderr)
        tools = ToolsInLoop(fields.get("tools") or ())
        if tools:
            fields["tools"] = tools
        async with tools:
            return await call(
                self._client,
                lambda it: it.run(code, on_stdout=out, on_stderr=err, wait_s=wait_s, **fields),
            )

    async def submit(
        self, code: str, **fields: Unpack[AsyncSubmitRequestOptional]
    ) -> SubmittedJob:
        """See :meth:`airlock.Airlock.submit`."""
        return await call(self._client, lambda it: it.submit(code, **fields))

    async def wait(
        self,
        job_id: str,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        tools: Sequence[AnyTool] = (),
        wait_s: float = math.inf,
    ) -> ExecutionRecord:
        """See :meth:`airlock.Airlock.wait`. All ``tools`` whose calls wait run at once."""
        out, err = in_loop(on_stdout), in_loop(on_stderr)
        async with ToolsInLoop(tools) as own:
            return await call(
                self._client,
                lambda it: it.wait(job_id, on_stdout=out, on_stderr=err, tools=own, wait_s=wait_s),
            )

    async def get(self, job_id: str) -> ExecutionRecord:
        """See :meth:`airlock.Airlock.get`."""
        return await call(self._client, lambda it: it.get(job_id))

    def list(
        self,
        *,
        status: Optional[ExecutionStatus] = None,
        job_type: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        batch_id: Optional[str] = None,
        parent_execution_id: Optional[str] = None,
        created_after: Optional[str] = None,
        created_before: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> AsyncIterator[ExecutionRecord]:
        """See :meth:`airlock.Airlock.list`."""
        return iterate(
            self._client,
            lambda it: it.list(
                status=status,
                job_type=job_type,
                metadata=metadata,
                batch_id=batch_id,
                parent_execution_id=parent_execution_id,
                created_after=created_after,
                created_before=created_before,
                limit=limit,
            ),
        )

    async def cancel(self, job_id: str) -> JobStatus:
        """See :meth:`airlock.Airlock.cancel`."""
        return await call(self._client, lambda it: it.cancel(job_id))

    async def rerun(self, job_id: str, **fields: Unpack[RerunRequest]) -> DerivedJob:
        """See :meth:`airlock.Airlock.rerun`."""
        return await call(self._client, lambda it: it.rerun(job_id, **fields))

    async def fork(
        self, job_id: str, code: str, **fields: Unpack[ForkRequestOptional]
    ) -> DerivedJob:
        """See :meth:`airlock.Airlock.fork`."""
        return await call(self._client, lambda it: it.fork(job_id, code, **fields))

    def stream(self, job_id: str, *, after: Optional[str] = None) -> AsyncIterator[JobEvent]:
        """See :meth:`airlock.Airlock.stream`."""
        return iterate(self._client, lambda it: it.stream(job_id, after=after))

    @asynccontextmanager
    async def session(
        self, **fields: Unpack[SessionRequest]
    ) -> AsyncGenerator[AsyncOpenSession, None]:
        """``async with client.session() as session:`` ends it with the block.

        ``await client.sessions.create()`` makes one that outlives it.
        """
        async with await self.sessions.create(**fields) as session:
            yield session

    async def batch(
        self,
        jobs: Sequence[Union[str, AsyncSubmitRequest]],
        *,
        atomic: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> SubmittedBatch:
        """See :meth:`airlock.Airlock.batch`."""
        return await call(
            self._client,
            lambda it: it.batch(jobs, atomic=atomic, idempotency_key=idempotency_key),
        )

    async def usage(self) -> Usage:
        """See :meth:`airlock.Airlock.usage`."""
        return await call(self._client, lambda it: it.usage())

    def audit(
        self,
        *,
        action: Optional[AuditAction] = None,
        tenant: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> AsyncIterator[AuditEntry]:
        """See :meth:`airlock.Airlock.audit`."""
        return iterate(
            self._client, lambda it: it.audit(action=action, tenant=tenant, limit=limit)
        )

    async def request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
    ) -> Any:
        """See :meth:`airlock.Airlock.request`."""
        return await call(self._client, lambda it: it.request(method, path, query, body))
