"""The parts of the client for asyncio: files, batches, dead letters, keys, tenants."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, AsyncIterator, List, Optional, Sequence, Union

from .client import Airlock
from .files import FileBody
from .threads import call, iterate
from .types import (
    ApiKey,
    Artifact,
    Batch,
    DeadLetter,
    DeadLetterStats,
    ExecutionErrorType,
    NewApiKey,
    Scope,
    Tenant,
    TenantLimits,
    UploadedFile,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncFiles:
    """See :class:`airlock.files.Files`."""

    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def upload(self, name: str, body: FileBody) -> UploadedFile:
        return await call(self._client, lambda it: it.files.upload(name, body))

    async def list(self) -> List[UploadedFile]:
        return await call(self._client, lambda it: it.files.list())

    async def get(self, file_id: str) -> bytes:
        return await call(self._client, lambda it: it.files.get(file_id))

    async def save(self, file_id: str, to: Union[str, PathLike[str]]) -> None:
        await call(self._client, lambda it: it.files.save(file_id, to))

    async def delete(self, file_id: str) -> None:
        await call(self._client, lambda it: it.files.delete(file_id))


class AsyncArtifacts:
    """See :class:`airlock.files.Artifacts`."""

    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def list(self, job_id: str) -> List[Artifact]:
        return await call(self._client, lambda it: it.artifacts.list(job_id))

    async def get(self, job_id: str, name: str) -> bytes:
        return await call(self._client, lambda it: it.artifacts.get(job_id, name))

    async def save(self, job_id: str, name: str, to: Union[str, PathLike[str]]) -> None:
        await call(self._client, lambda it: it.artifacts.save(job_id, name, to))


class AsyncBatches:
    """See :class:`airlock.batches.Batches`."""

    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def get(self, batch_id: str) -> Batch:
        return await call(self._client, lambda it: it.batches.get(batch_id))

    async def cancel(self, batch_id: str) -> Batch:
        return await call(self._client, lambda it: it.batches.cancel(batch_id))


class AsyncDeadLetters:
    """See :class:`airlock.dead_letters.DeadLetters`."""

    def __init__(self, client: Airlock) -> None:
        self._client = client

    def list(
        self, *, error_type: Optional[ExecutionErrorType] = None, limit: Optional[int] = None
    ) -> AsyncIterator[DeadLetter]:
        return iterate(
            self._client, lambda it: it.dead_letters.list(error_type=error_type, limit=limit)
        )

    async def stats(self) -> DeadLetterStats:
        return await call(self._client, lambda it: it.dead_letters.stats())

    async def delete(self, id: int) -> None:
        await call(self._client, lambda it: it.dead_letters.delete(id))


class AsyncKeys:
    """See :class:`airlock.tenants.Keys`."""

    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        tenant: Optional[str] = None,
        expires_in_s: Optional[int] = None,
    ) -> NewApiKey:
        return await call(
            self._client,
            lambda it: it.keys.create(name, scopes, tenant=tenant, expires_in_s=expires_in_s),
        )

    async def list(self, *, tenant: Optional[str] = None) -> List[ApiKey]:
        return await call(self._client, lambda it: it.keys.list(tenant=tenant))

    async def rotate(self, id: str, *, old_valid_s: Optional[int] = None) -> NewApiKey:
        return await call(self._client, lambda it: it.keys.rotate(id, old_valid_s=old_valid_s))

    async def revoke(self, id: str) -> ApiKey:
        return await call(self._client, lambda it: it.keys.revoke(id))


class AsyncTenants:
    """See :class:`airlock.tenants.Tenants`."""

    def __init__(self, client: Airlock) -> None:
        self._client = client

    async def list(self) -> List[Tenant]:
        return await call(self._client, lambda it: it.tenants.list())

    async def get(self, name: str) -> Tenant:
        return await call(self._client, lambda it: it.tenants.get(name))

    async def set_limits(self, name: str, **limits: Unpack[TenantLimits]) -> Tenant:
        return await call(self._client, lambda it: it.tenants.set_limits(name, **limits))
