"""The parts of the client for asyncio: files, batches, dead letters, keys, tenants."""

from __future__ import annotations

from ..jobs.batches import Batches
from ..jobs.dead_letters import DeadLetters
from ..jobs.files import Artifacts, Files
from ..tenants import Keys, Tenants
from .lift import Lifted, awaited, iterated


class AsyncFiles(Lifted[Files]):
    """Files that jobs get by their ``file_id``."""

    upload = awaited(Files.upload)
    list = awaited(Files.list)
    get = awaited(Files.get)
    save = awaited(Files.save)
    delete = awaited(Files.delete)


class AsyncArtifacts(Lifted[Artifacts]):
    """The files that jobs wrote to /output."""

    list = awaited(Artifacts.list)
    get = awaited(Artifacts.get)
    save = awaited(Artifacts.save)


class AsyncBatches(Lifted[Batches]):
    """The state of batches, by ``batch_id``."""

    get = awaited(Batches.get)
    cancel = awaited(Batches.cancel)


class AsyncDeadLetters(Lifted[DeadLetters]):
    """Asynchronous jobs that failed, with what was submitted."""

    list = iterated(DeadLetters.list)
    stats = awaited(DeadLetters.stats)
    delete = awaited(DeadLetters.delete)


class AsyncKeys(Lifted[Keys]):
    """API keys. Needs a key with the scope ``admin``."""

    create = awaited(Keys.create)
    list = awaited(Keys.list)
    rotate = awaited(Keys.rotate)
    revoke = awaited(Keys.revoke)


class AsyncTenants(Lifted[Tenants]):
    """Who owns records, and what each may use. Needs a key with the scope ``admin``."""

    list = awaited(Tenants.list)
    get = awaited(Tenants.get)
    set_limits = awaited(Tenants.set_limits)
