"""The client: verbs on jobs, their files and artifacts."""

from __future__ import annotations

import json
import math
import os
import time
from os import PathLike
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence, Union
from urllib.parse import quote

from .cancel import Cancel
from .errors import AirlockError, ConnectionError
from .events import JobEvent, stream
from .problems import WaitTimeoutError
from .transport import Transport, pause_s
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

# How much later than asked the service's own answer may come.
_SLACK_S = 2
# Shorter than the time that proxies allow for an answer.
_ROUND_S = 25


def connect(
    url: Optional[str] = None,
    key: Optional[str] = None,
    *,
    retries: int = 6,
    timeout: float = 60.0,
) -> Airlock:
    """A client of one service. It keeps no connection: there is nothing to close, also after ``with``.

    :param url: Address of the service; else that of the environment variable AIRLOCK_URL.
    :param key: An API key; it is sent as ``Authorization: Bearer``. Without a ``url``, else AIRLOCK_KEY.
    :param retries: How often a request that failed for the moment is sent again.
    :param timeout: Seconds for which the service may be silent.
    """
    if url is None:
        url = os.environ.get("AIRLOCK_URL") or "http://127.0.0.1:8080"
        key = key or os.environ.get("AIRLOCK_KEY") or None
    return Airlock(Transport(url, key, retries, timeout, Cancel()))


class Airlock:
    """See :func:`connect`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.files = Files(transport)
        self.artifacts = Artifacts(transport)

    def __enter__(self) -> Airlock:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open between two calls."""

    @property
    def url(self) -> str:
        return self._transport.url

    def with_options(
        self,
        *,
        retries: Optional[int] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Airlock:
        """The same client with other options. ``cancel`` ends its calls from another thread."""
        return Airlock(self._transport.change(cancel, retries, timeout))

    def run(
        self, code: str, *, wait_s: float = math.inf, **fields: Unpack[AsyncSubmitRequestOptional]
    ) -> ExecutionRecord:
        """Runs code to its end. Code that fails raises nothing: the record says how it ended.

        If the call is interrupted, the job is cancelled.
        """
        job_id = self.submit(code, **fields)["job_id"]
        try:
            return self.wait(job_id, wait_s=wait_s)
        except BaseException as error:
            if not isinstance(error, Exception) or self._transport.cancel.is_set:
                self._cancel_quickly(job_id)
            raise

    def submit(self, code: str, **fields: Unpack[AsyncSubmitRequestOptional]) -> SubmittedJob:
        """Queues code. With its own idempotency key, it is safe to repeat, which the client does."""
        return self.request("POST", "/execute/async", body={"code": code, **fields})

    def wait(self, job_id: str, *, wait_s: float = math.inf) -> ExecutionRecord:
        """The full record of a job, once it has ended.

        :param wait_s: Seconds after which to raise WaitTimeoutError, or ConnectionError where the service is
            silent or gone. The job goes on.
        """
        until = time.monotonic() + wait_s
        while True:
            left_s = min(_ROUND_S, max(0, until - time.monotonic()))
            query = {"wait": "true", "timeout": math.ceil(left_s), "view": "full"}
            transport = self._transport
            if wait_s < math.inf:
                # A silent service gets no more time than that, however many tries it would be.
                limit_s = min(transport.timeout or math.inf, left_s + _SLACK_S)
                transport = transport.change(retries=0, timeout=limit_s)
            try:
                return transport.send("GET", f"/jobs/{_step(job_id)}/result", query)
            except (WaitTimeoutError, ConnectionError) as error:
                is_last = wait_s == math.inf and isinstance(error, ConnectionError)
                if is_last or time.monotonic() >= until:
                    raise
                if isinstance(error, ConnectionError):
                    transport.cancel.sleep(pause_s(1))

    def cancel(self, job_id: str) -> JobStatus:
        """Asks a job to end."""
        return self.request("POST", f"/jobs/{_step(job_id)}/cancel")

    def stream(self, job_id: str, *, after: Optional[str] = None) -> Iterator[JobEvent]:
        """The events of a job, from its submission to its ``end``, also of a job that has ended.

        After a break of the connection it goes on where it was; it raises once ``retries`` breaks
        in a row brought nothing.

        :param after: The id of an event: only what came after it.
        """
        return stream(self._transport, _step(job_id), after)

    def batch(
        self, jobs: Sequence[Union[str, AsyncSubmitRequest]], *, atomic: bool = False
    ) -> SubmittedBatch:
        """Queues up to 1,000 jobs in one request. Each has its own answer, in its place."""
        requests = [{"code": job} if isinstance(job, str) else job for job in jobs]
        return self.request("POST", "/execute/batch", body={"jobs": requests, "atomic": atomic})

    def request(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Any = None,
    ) -> Any:
        """Any request of the interface, with JSON in both directions."""
        return self._transport.send(method, path, query, body)

    def _cancel_quickly(self, job_id: str) -> None:
        try:
            self.with_options(cancel=Cancel(), retries=1, timeout=10).cancel(job_id)
        except AirlockError:
            # It has ended, or the service is away.
            pass


class Files:
    """Files that jobs get by their ``file_id``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def upload(self, name: str, body: Union[bytes, str, PathLike[str]]) -> UploadedFile:
        """Stores a file: bytes, text, or the file at a path. After a break it is sent again."""
        if isinstance(body, PathLike):
            with open(body, "rb") as file:
                size = file.seek(0, 2)
                return self._upload(name, file, size)
        data = body.encode() if isinstance(body, str) else body
        return self._upload(name, data, len(data))

    def _upload(self, name: str, body: Any, size: int) -> UploadedFile:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        answer = self._transport.send_bytes("POST", "/files", {"name": name}, body, headers)
        return json.loads(answer)

    def list(self) -> List[UploadedFile]:
        """All of them, the newest first."""
        found: List[UploadedFile] = []
        while True:
            page = self._transport.send("GET", "/files", {"offset": len(found)})
            found += page["items"]
            if not page["has_more"]:
                return found

    def get(self, file_id: str) -> bytes:
        return self._transport.send_bytes("GET", f"/files/{_step(file_id)}")

    def delete(self, file_id: str) -> None:
        self._transport.send("DELETE", f"/files/{_step(file_id)}")


class Artifacts:
    """The files that jobs wrote to /output."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, job_id: str) -> List[Artifact]:
        return self._transport.send("GET", f"/jobs/{_step(job_id)}/artifacts")["artifacts"]

    def get(self, job_id: str, name: str) -> bytes:
        path = f"/jobs/{_step(job_id)}/artifacts/{quote(name)}"
        return self._transport.send_bytes("GET", path)


def _step(text: str) -> str:
    return quote(text, safe="")
