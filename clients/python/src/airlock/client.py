"""The client: verbs on jobs; API keys, tenants and their limits, and the log of what was changed."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence, Union

from .jobs import (
    Artifacts,
    Batches,
    Callbacks,
    DeadLetters,
    Files,
    OnOutput,
    OnResult,
    run_to_end,
    stream,
    wait,
)
from .record import JobEvent, shape
from .sessions import OpenSession, Sessions
from .tools import AnyTool, given
from .transport import Cancel, Part, Transport, step
from .types import (
    ApiKey,
    AsyncSubmitRequest,
    AsyncSubmitRequestOptional,
    AuditAction,
    AuditEntry,
    DerivedJob,
    ExecutionRecord,
    ExecutionStatus,
    ForkRequestOptional,
    JobStatus,
    NewApiKey,
    RerunRequest,
    Scope,
    SessionRequest,
    SubmittedBatch,
    SubmittedJob,
    Tenant,
    TenantLimits,
    Usage,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


def connect(
    url: Optional[str] = None,
    key: Optional[str] = None,
    *,
    tenant: Optional[str] = None,
    retries: int = 6,
    timeout: float = 60.0,
) -> Airlock:
    """A client of one service. It keeps no connection: there is nothing to close, also after ``with``.

    :param url: Address of the service; else that of the environment variable AIRLOCK_URL.
    :param key: An API key; it is sent as ``Authorization: Bearer``. Without a ``url``, else AIRLOCK_KEY.
    :param tenant: With a key that has the scope ``admin``: whose records the calls are about. ``"*"`` reads
        those of all.
    :param retries: How often a request that failed for the moment is sent again.
    :param timeout: Seconds for which the service may be silent.
    """
    if url is None:
        url = os.environ.get("AIRLOCK_URL") or "http://127.0.0.1:8080"
        key = key or os.environ.get("AIRLOCK_KEY") or None
    return Airlock(Transport(url, key, tenant, retries, timeout, Cancel()))


class Airlock:
    """A client, as :func:`connect` makes it. Threads may share it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.files = Files(transport)
        self.artifacts = Artifacts(transport)
        self.sessions = Sessions(transport)
        self.batches = Batches(transport)
        self.dead_letters = DeadLetters(transport)
        self.keys = Keys(transport)
        self.tenants = Tenants(transport)

    def __enter__(self) -> Airlock:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: no connection is open between two calls."""

    def __repr__(self) -> str:
        return f"<Airlock {self.url}>"

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._transport.url

    def with_options(
        self,
        *,
        tenant: Optional[str] = None,
        retries: Optional[int] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Airlock:
        """The same client with other options. ``cancel`` ends its calls from another thread."""
        return Airlock(self._transport.change(cancel, retries, timeout, tenant))

    def run(
        self,
        code: str,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        on_result: Optional[OnResult] = None,
        wait_s: float = math.inf,
        **fields: Unpack[AsyncSubmitRequestOptional],
    ) -> ExecutionRecord:
        """Runs code to its end. Code that fails raises nothing: the record says how it ended.

        If the call is interrupted, or ``on_stdout`` raises, the job is cancelled.

        :param on_stdout: Is called with each piece of output as it happens; so is ``on_stderr``.
        :param on_result: Is called with each value that the code shows, as it happens, if ``results`` is True.
        :param wait_s: See :meth:`wait`.
        :param fields: See :meth:`submit`. Functions in ``tools`` run in this thread: see :meth:`wait`.
        """
        job_id, tools = self.submit(code, **fields).job_id, fields.get("tools") or ()
        callbacks = Callbacks(on_stdout, on_stderr, on_result, tools)
        return run_to_end(self._transport, job_id, callbacks, wait_s)

    def submit(self, code: str, **fields: Unpack[AsyncSubmitRequestOptional]) -> SubmittedJob:
        """Queues code. With its own idempotency key, it is safe to repeat, which the client does.

        :param fields: Those of ``POST /execute/async``: ``input_data``, ``files``, ``stdin``, ``args``,
            ``timeout`` (seconds), ``startup_timeout``, ``job_type``, ``requirements``, ``metadata``, ``results``,
            ``tools`` (functions, or what a request says of them), ``tool_timeout``, ``idempotency_key``, ``run_at``, ``queue_timeout``, ``max_attempts``, ``callback_url``.
        """
        body = {"code": code, **given(fields)}
        return shape(SubmittedJob, self.request("POST", "/execute/async", body=body))

    def wait(
        self,
        job_id: str,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        on_result: Optional[OnResult] = None,
        tools: Sequence[AnyTool] = (),
        wait_s: float = math.inf,
    ) -> ExecutionRecord:
        """The full record of a job, once it has ended.

        :param on_stdout: Is called with each piece of output, from the first on; so is ``on_stderr``. If the
            service loses an attempt, the next one's output comes after it.
        :param on_result: Is called with each value that the code shows.
        :param tools: Functions that the code calls. They run in this thread, one after the other. The code gets what
            one returns, or the text of its exception.
        :param wait_s: Seconds after which to raise WaitTimeoutError, or ConnectionError where the service is
            silent or gone. The job goes on.
        """
        callbacks = Callbacks(on_stdout, on_stderr, on_result, tools)
        return wait(self._transport, job_id, callbacks, wait_s)

    def get(self, job_id: str) -> ExecutionRecord:
        """The full record of a job as it is now, whether it has ended or not."""
        answer = self.request("GET", f"/executions/{step(job_id)}", {"view": "full"})
        return shape(ExecutionRecord, answer)

    def list(
        self,
        *,
        status: Union[ExecutionStatus, Sequence[ExecutionStatus], None] = None,
        error: Optional[str] = None,
        job_type: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        batch_id: Optional[str] = None,
        parent_execution_id: Optional[str] = None,
        session_id: Optional[str] = None,
        created_after: Optional[str] = None,
        created_before: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> Iterator[ExecutionRecord]:
        """The full records, the newest first. They are fetched page by page, as they are read.

        :param error: A text in the type or message of the error.
        :param limit: So many at most.
        """
        query = {
            "status": status,
            "error": error,
            "job_type": job_type,
            "metadata": [f"{name}:{value}" for name, value in (metadata or {}).items()],
            "batch_id": batch_id,
            "parent_execution_id": parent_execution_id,
            "session_id": session_id,
            "created_after": created_after,
            "created_before": created_before,
            "view": "full",
        }
        for item in self._transport.pages("/executions", query, "execution_id", limit):
            yield shape(ExecutionRecord, item)

    def cancel(self, job_id: str) -> JobStatus:
        """Asks a job to end."""
        return shape(JobStatus, self.request("POST", f"/jobs/{step(job_id)}/cancel"))

    def rerun(self, job_id: str, **fields: Unpack[RerunRequest]) -> DerivedJob:
        """Queues the same code on the same input as a new job."""
        answer = self.request("POST", f"/jobs/{step(job_id)}/rerun", body=given(fields))
        return shape(DerivedJob, answer)

    def fork(self, job_id: str, code: str, **fields: Unpack[ForkRequestOptional]) -> DerivedJob:
        """Queues new code on the input of a job as a new job."""
        body = {"code": code, **given(fields)}
        return shape(DerivedJob, self.request("POST", f"/jobs/{step(job_id)}/fork", body=body))

    def stream(self, job_id: str, *, after: Optional[str] = None) -> Iterator[JobEvent]:
        """The events of a job, from its submission to its ``end``, also of a job that has ended.

        After a break of the connection it goes on where it was; it raises once ``retries`` breaks
        in a row brought nothing.

        :param after: The id of an event: only what came after it.
        """
        return stream(self._transport, step(job_id), after)

    def session(self, **fields: Unpack[SessionRequest]) -> OpenSession:
        """A new interpreter that remembers from call to call; see :meth:`Sessions.create`.

        ``with client.session() as session:`` ends it with the block.
        """
        return self.sessions.create(**fields)

    def batch(
        self,
        jobs: Sequence[Union[str, AsyncSubmitRequest]],
        *,
        atomic: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> SubmittedBatch:
        """Queues up to 1,000 jobs in one request. Each has its own answer, in the order of the jobs.

        :param jobs: Code, or objects with the fields of :meth:`submit` and ``code``.
        :param atomic: Accept all or none; else a job that is refused has a Problem in its place.
        """
        if isinstance(jobs, (str, Mapping)):
            raise TypeError("A batch is a list of jobs.")
        requests = [{"code": job} if isinstance(job, str) else given(job) for job in jobs]
        body = {"jobs": requests, "atomic": atomic, **given({"idempotency_key": idempotency_key})}
        return shape(SubmittedBatch, self.request("POST", "/execute/batch", body=body))

    def usage(self) -> Usage:
        """What the tenant of the key uses, and what it may use."""
        return shape(Usage, self.request("GET", "/usage"))

    def audit(
        self,
        *,
        action: Optional[AuditAction] = None,
        tenant: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> Iterator[AuditEntry]:
        """What was changed and by whom, the newest first. Needs a key with the scope ``admin``."""
        return audit(self._transport, action, tenant, limit)

    def request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
    ) -> Any:
        """Any request of the interface, with JSON in both directions."""
        return self._transport.send(method, path, query, body)


class Keys(Part):
    """API keys. Needs a key with the scope ``admin``."""

    def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        tenant: Optional[str] = None,
        expires_in_s: Optional[int] = None,
    ) -> NewApiKey:
        """Makes a key. Its ``key`` is in this answer only: the service keeps a hash.

        :param name: For people: who uses it.
        :param scopes: What it may do; no more than the key of this client may.
        :param tenant: Whose records it sees; it is made if it is new. Default: the tenant of this client.
        :param expires_in_s: Seconds until it is void. Default: never.
        """
        body = {"name": name, "scopes": list(scopes), "tenant": tenant, "expires_in_s": expires_in_s}
        given = {field: value for field, value in body.items() if value is not None}
        return shape(NewApiKey, self._transport.send("POST", "/keys", body=given))

    def list(self, *, tenant: Optional[str] = None) -> List[ApiKey]:
        """All of them, or those of one tenant; also those that are void, without the keys themselves."""
        answer = self._transport.send("GET", "/keys", {"tenant": tenant})
        return [shape(ApiKey, one) for one in answer["keys"]]

    def rotate(self, id: str, *, old_valid_s: Optional[int] = None) -> NewApiKey:
        """Makes a new key in the place of one. Its id, tenant and limits stay.

        :param old_valid_s: Seconds for which the old key holds too. Default: a day.
        """
        body = {} if old_valid_s is None else {"old_valid_s": old_valid_s}
        answer = self._transport.send("POST", f"/keys/{step(id)}/rotate", body=body)
        return shape(NewApiKey, answer)

    def revoke(self, id: str) -> ApiKey:
        """Makes a key void for good."""
        return shape(ApiKey, self._transport.send("POST", f"/keys/{step(id)}/revoke"))


class Tenants(Part):
    """Who owns records, and what each may use. Needs a key with the scope ``admin``."""

    def list(self) -> List[Tenant]:
        """All of them, with their limits and what they use."""
        answer = self._transport.send("GET", "/tenants")
        return [shape(Tenant, one) for one in answer["tenants"]]

    def get(self, name: str) -> Tenant:
        """Its limits, and what it uses."""
        return shape(Tenant, self._transport.send("GET", f"/tenants/{step(name)}"))

    def set_limits(self, name: str, **limits: Unpack[TenantLimits]) -> Tenant:
        """Replaces all limits of a tenant: what is not named here has none. Makes the tenant if it is new.

        :param limits: ``max_queued``, ``max_running``, ``max_stored_bytes``, ``max_cpu_s_day``,
            ``max_requests``.
        """
        return shape(Tenant, self._transport.send("PUT", f"/tenants/{step(name)}", body=limits))


def audit(
    transport: Transport,
    action: Optional[AuditAction],
    tenant: Optional[str],
    limit: Optional[int],
) -> Iterator[AuditEntry]:
    query = {"action": action, "tenant": tenant}
    for item in transport.pages("/audit", query, "id", limit):
        yield shape(AuditEntry, item)
