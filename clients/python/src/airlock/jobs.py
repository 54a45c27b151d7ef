"""What is made of jobs: their events, ends, files, batches and dead letters."""

from __future__ import annotations

import io
import json
import math
import socket
import time
from contextlib import contextmanager
from http.client import HTTPResponse
from os import PathLike
from typing import BinaryIO, Callable, Generator, Iterator, List, NamedTuple, Optional, Sequence, Union

from .errors import AirlockError, ConnectionError, lasting
from .problems import WaitTimeoutError
from .record import JobEvent, shape
from .tools import AnyTool, Tools
from .transport import Cancel, Part, Transport, is_worth_repeating, parts, pause_s, save, step
from .types import (
    Artifact,
    Batch,
    DeadLetter,
    DeadLetterStats,
    ExecutionErrorType,
    ExecutionRecord,
    ResultItem,
    UploadedFile,
)

#: A file on disk, bytes, or a binary file that is open and can be read again.
FileBody = Union["PathLike[str]", bytes, BinaryIO]
#: Gets the output of a job as it happens, in pieces of any length.
OnOutput = Callable[[str], object]
#: Gets each value that the code shows.
OnResult = Callable[[ResultItem], object]
# The service sends an empty line after 15 s in which nothing happened.
_IDLE_S = 30.0
_TYPE = "application/x-ndjson"
# How much later than asked the service's own answer may come.
_SLACK_S = 2
# Shorter than the time that proxies allow for an answer.
_ROUND_S = 25
# How long an interrupted run may take to cancel its job; twice as long if the service does not answer.
_CANCEL_S = 3


def wait(
    transport: Transport, job_id: str, callbacks: Callbacks, wait_s: float
) -> ExecutionRecord:
    """See :meth:`airlock.Airlock.wait`."""
    path = f"/jobs/{step(job_id)}/result"
    until = time.monotonic() + wait_s
    follow(transport, step(job_id), until, callbacks)
    is_endless = wait_s == math.inf
    while True:
        left_s = min(_ROUND_S, max(0, until - time.monotonic()))
        query = {"wait": "true", "timeout": math.ceil(left_s), "view": "full"}
        silent_s = transport.timeout and left_s + transport.timeout
        if not is_endless:
            # A silent service gets no more time than that, however many tries it would be.
            silent_s = left_s + min(transport.timeout or math.inf, _SLACK_S)
        try:
            retries = None if is_endless else 0
            answer = transport.change(None, retries, silent_s).send("GET", path, query)
            return shape(ExecutionRecord, answer)
        except WaitTimeoutError as error:
            if time.monotonic() >= until:
                message = f"Job {job_id} did not end within {wait_s:g} s. The job goes on."
                raise WaitTimeoutError(error.status, message, error.problem) from None
        except AirlockError as error:
            is_last = is_endless or time.monotonic() >= until
            if is_last or not is_worth_repeating(error, True):
                raise
            transport.cancel.sleep(min(pause_s(1, error), max(0, until - time.monotonic())))


def run_to_end(
    transport: Transport, job_id: str, callbacks: Callbacks, wait_s: float
) -> ExecutionRecord:
    """The same, but cancels the job if the call is interrupted, or a callback raises."""
    try:
        return wait(transport, job_id, callbacks, wait_s)
    except BaseException as error:
        if isinstance(error, AirlockError):
            error.job_id = job_id
        if not isinstance(error, AirlockError) or transport.cancel.is_set:
            _cancel_quickly(transport, job_id)
        raise


def _cancel_quickly(transport: Transport, job_id: str) -> None:
    try:
        transport.change(Cancel(), 1, _CANCEL_S).send("POST", f"/jobs/{step(job_id)}/cancel")
    except AirlockError:
        # It has ended, or the service is away.
        pass


class Callbacks(NamedTuple):
    """What a program is told, and its functions that the code calls."""

    on_stdout: Optional[OnOutput] = None
    on_stderr: Optional[OnOutput] = None
    on_result: Optional[OnResult] = None
    tools: Sequence[AnyTool] = ()


def follow(transport: Transport, job_id: str, until: float, callbacks: Callbacks) -> None:
    """Calls them until the job ends or the time is up."""
    on_stdout, on_stderr, on_result, given = callbacks
    tools = given if isinstance(given, Tools) else Tools(given)
    if not (on_stdout or on_stderr or on_result or tools.functions):
        return
    for event in stream(transport, job_id, None, until):
        if event.event == "tool_call":
            tools.take(transport, job_id, event.data)
        elif event.event == "display" and on_result:
            on_result(shape(ResultItem, event.data))
        elif event.event == "stdout" and on_stdout:
            on_stdout(event.data.text or "")
        elif event.event == "stderr" and on_stderr:
            on_stderr(event.data.text or "")


def stream(
    transport: Transport, job_id: str, after: Optional[str], until: float = math.inf
) -> Iterator[JobEvent]:
    """The events up to ``end``, or those that came before the time was up."""
    path = f"/jobs/{job_id}/events"
    breaks = 0
    while True:
        is_fruitless = True
        failure: Optional[AirlockError] = None
        try:
            once = transport.change(retries=0, timeout=_limit(transport.timeout, until))
            with once.open(path, {"after": after}, {"Accept": _TYPE}) as (answer, sock):
                # The cursor is that of the end.
                if answer.status == 204:
                    return
                for line in _lines(answer, sock, transport.timeout, until):
                    is_fruitless = False
                    breaks = 0
                    if not line:
                        continue
                    event = _parse(line)
                    after = event.id or after
                    yield event
                    if event.event == "end":
                        return
            if is_fruitless:
                raise ConnectionError("The events ended before the job's end.")
        except AirlockError as error:
            breaks += 1
            if not is_worth_repeating(error, True):
                raise
            if breaks > transport.retries and time.monotonic() < until:
                raise
            failure = error
        if time.monotonic() >= until:
            return
        transport.cancel.sleep(min(pause_s(max(1, breaks), failure), until - time.monotonic()))


def _limit(timeout: float, until: float) -> float:
    """Limits each try to the time that is left."""
    left_s = max(0.1, until - time.monotonic())
    return min(timeout or math.inf, left_s) if left_s < math.inf else timeout


def _parse(line: bytes) -> JobEvent:
    try:
        event = json.loads(line)
        return shape(JobEvent, {**event, "event": event["event"]})
    except (ValueError, TypeError, KeyError):
        raise lasting("The answer has no events of Airlock: check the address.") from None


def _lines(
    answer: HTTPResponse, sock: socket.socket, timeout: float, until: float
) -> Iterator[bytes]:
    """The lines of a body. A last line without its end is not whole, and left out."""
    rest = b""
    while True:
        sock.settimeout(_limit(timeout and max(timeout, _IDLE_S), until) or None)
        part = answer.read1(65536)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from lines


class Files(Part):
    """Files that jobs get by their ``file_id``."""

    def upload(self, name: str, body: FileBody) -> UploadedFile:
        """Stores a file. If the connection breaks, it is sent again.

        :param body: ``Path("d.csv")`` for a file on disk, which is sent as it is read; bytes; or an open
            binary file.
        """
        headers = {"Content-Type": "application/octet-stream"}
        with opened(body) as file:
            answer = self._transport.send_bytes("POST", "/files", {"name": name}, file, headers)
        return shape(UploadedFile, self._transport.parse(answer))

    def list(self) -> List[UploadedFile]:
        """All of them, the newest first."""
        items = self._transport.pages("/files", {}, "file_id", None)
        return [shape(UploadedFile, item) for item in items]

    def get(self, file_id: str) -> bytes:
        """The whole file."""
        return b"".join(parts(self._transport, f"/files/{step(file_id)}"))

    def save(self, file_id: str, to: Union[str, PathLike[str]]) -> None:
        """Writes the file to disk as it arrives. Replaces an existing file, and makes its folder."""
        save(self._transport, f"/files/{step(file_id)}", to)

    def delete(self, file_id: str) -> None:
        """Removes the file. Jobs that have it keep it."""
        self._transport.send("DELETE", f"/files/{step(file_id)}")


class Artifacts(Part):
    """The files that jobs wrote to /output."""

    def list(self, job_id: str) -> List[Artifact]:
        """Their names, sizes and hashes."""
        answer = self._transport.send("GET", f"/jobs/{step(job_id)}/artifacts")
        return [shape(Artifact, item) for item in answer["artifacts"]]

    def get(self, job_id: str, name: str) -> bytes:
        """The whole file."""
        return b"".join(parts(self._transport, _path(job_id, name)))

    def save(self, job_id: str, name: str, to: Union[str, PathLike[str]]) -> None:
        """Writes the file to disk as it arrives. Replaces an existing file, and makes its folder."""
        save(self._transport, _path(job_id, name), to)


def _path(job_id: str, name: str) -> str:
    return f"/jobs/{step(job_id)}/artifacts/{'/'.join(map(step, name.split('/')))}"


@contextmanager
def opened(body: FileBody) -> Generator[BinaryIO, None, None]:
    """The body as an open file. One that the caller has opened stays open."""
    if isinstance(body, PathLike):
        with open(body, "rb") as file:
            yield file
    else:
        yield _as_file(body)


def _as_file(body: Union[bytes, BinaryIO]) -> BinaryIO:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return io.BytesIO(body)
    if isinstance(body, str):
        raise TypeError(
            "A str may be a path or a text: give Path(…) to upload the file there, or "
            "….encode() to upload the text."
        )
    is_binary = hasattr(body, "seekable") and not isinstance(body, io.TextIOBase)
    if not is_binary or not body.seekable():
        raise TypeError(
            f"{type(body).__name__} cannot be uploaded: give a Path, bytes, or a file on disk "
            "that is open for reading bytes, as by open(…, 'rb')."
        )
    return body


class Batches(Part):
    """The state of batches, by ``batch_id``. ``Airlock.list`` has their jobs."""

    def get(self, batch_id: str) -> Batch:
        """How many of its jobs have each status."""
        return shape(Batch, self._transport.send("GET", f"/batches/{step(batch_id)}"))

    def cancel(self, batch_id: str) -> Batch:
        """Cancels the jobs of a batch that have not ended."""
        return shape(Batch, self._transport.send("POST", f"/batches/{step(batch_id)}/cancel"))


class DeadLetters(Part):
    """Asynchronous jobs that failed, with what was submitted."""

    def list(
        self, *, error_type: Optional[ExecutionErrorType] = None, limit: Optional[int] = None
    ) -> Iterator[DeadLetter]:
        """The newest first. They are fetched page by page, as they are read.

        :param limit: So many at most.
        """
        for item in self._transport.pages("/dlq", {"error_type": error_type}, "id", limit):
            yield shape(DeadLetter, item)

    def stats(self) -> DeadLetterStats:
        """How many there are, of each type of error."""
        return shape(DeadLetterStats, self._transport.send("GET", "/dlq/stats"))

    def delete(self, id: int) -> None:
        """Removes an entry. The record of its job stays."""
        self._transport.send("DELETE", f"/dlq/{id}")
