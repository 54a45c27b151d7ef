"""The client for asyncio: the same calls, each in a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from contextlib import asynccontextmanager
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generic,
    Iterable,
    Iterator,
    Optional,
    Set,
    TypeVar,
    cast,
)

from .client import Airlock, Keys, Tenants, connect
from .errors import AirlockError
from .jobs import Artifacts, Batches, DeadLetters, Files
from .record import JobEventData
from .sessions import Contexts, OpenSession, SessionFiles, Sessions
from .tools import AnyTool, Tools, failure, post
from .transport import Cancel, Transport
from .types import SessionRequest

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    Given = ParamSpec("Given")

Sync = TypeVar("Sync")
Result = TypeVar("Result")

# A cancelled call ends at once. A cancelled run first cancels its job, unless the service does not answer.
_CANCEL_S = 8


class Lifted(Generic[Sync]):
    """What is like a part of the sync client, for asyncio. Cancelling a call closes its socket."""

    def __init__(self, client: Airlock, part: Callable[[Airlock], Sync]) -> None:
        self._client = client
        self._part = part

    async def call(self, work: Callable[[Sync], Result]) -> Result:
        """What calls of the sync part answer, without blocking the loop."""
        cancel = Cancel()
        part = self._part(self._client.with_options(cancel=cancel))
        return await in_thread(lambda: work(part), cancel)

    async def iterate(self, work: Callable[[Sync], Iterator[Result]]) -> AsyncIterator[Result]:
        cancel = Cancel()
        end: Any = object()
        results = work(self._part(self._client.with_options(cancel=cancel)))
        try:
            while True:
                result = await in_thread(lambda: next(results, end), cancel)
                if result is end:
                    return
                yield result
        finally:
            cancel.cancel()


def awaited(
    method: Callable[Concatenate[Sync, Given], Result],
) -> Callable[Concatenate[Lifted[Sync], Given], Coroutine[Any, Any, Result]]:
    """The method as a coroutine function."""

    @functools.wraps(method)
    async def run(part: Lifted[Sync], /, *args: Given.args, **fields: Given.kwargs) -> Result:
        return await part.call(lambda it: method(it, *args, **fields))

    return run


def followed(
    method: Callable[Concatenate[Sync, Given], Result],
) -> Callable[Concatenate[Lifted[Sync], Given], Coroutine[Any, Any, Result]]:
    """The same for a method with callbacks and tools. Coroutine functions run in the event loop, and so do callbacks."""
    work = cast(Callable[..., Result], method)

    @functools.wraps(method)
    async def run(part: Lifted[Sync], /, *args: Given.args, **fields: Given.kwargs) -> Result:
        given = {
            name: in_loop(cast(Any, value)) if name.startswith("on_") and value else value
            for name, value in fields.items()
        }
        async with ToolsInLoop(cast(Any, given.pop("tools", None)) or ()) as tools:
            if tools:
                given["tools"] = tools
            return await part.call(lambda it: work(it, *args, **given))

    return run


def iterated(
    method: Callable[Concatenate[Sync, Given], Iterator[Result]],
) -> Callable[Concatenate[Lifted[Sync], Given], AsyncIterator[Result]]:
    """The same for a method that answers with an iterator."""

    @functools.wraps(method)
    def run(
        part: Lifted[Sync], /, *args: Given.args, **fields: Given.kwargs
    ) -> AsyncIterator[Result]:
        return part.iterate(lambda it: method(it, *args, **fields))

    return run


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


class AsyncSessions(Lifted[Sessions]):
    """Makes sessions, and finds existing ones."""

    async def create(self, **fields: Unpack[SessionRequest]) -> AsyncOpenSession:
        """See :meth:`airlock.sessions.Sessions.create`."""
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
