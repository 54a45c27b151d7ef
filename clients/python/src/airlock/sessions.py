"""Sessions: interpreters that remember from call to call, their calls, files and contexts."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Union

from .jobs import Callbacks, FileBody, OnOutput, OnResult, opened, run_to_end
from .record import shape
from .tools import given
from .transport import Part, Transport, parts, save, step
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

# How long the service waits for a new session if the request does not say it.
_WAIT_S = 30


class Sessions(Part):
    """Makes sessions, and finds existing ones."""

    def create(self, **fields: Unpack[SessionRequest]) -> OpenSession:
        """A new session. It lives until it is closed, idle for ``idle_timeout``, or older than ``lifetime``.

        If none could be started within ``wait`` seconds, it is still queued: its calls wait for it.

        :param fields: ``job_type``, ``requirements``, ``env``, ``idle_timeout`` (seconds; None: never),
            ``lifetime``, ``metadata``, ``wait``, ``startup_timeout``, ``idempotency_key``.
        """
        transport = self._transport
        silent_s = transport.timeout and transport.timeout + fields.get("wait", _WAIT_S)
        answer = transport.change(timeout=silent_s).send("POST", "/sessions", body=fields)
        return OpenSession(transport, answer["session_id"])

    def attach(self, session_id: str) -> OpenSession:
        """An existing session. Sends no request."""
        return OpenSession(self._transport, session_id)

    def get(self, session_id: str) -> Session:
        """Its state: whether it is ready, or why it has ended."""
        return shape(Session, self._transport.send("GET", f"/sessions/{step(session_id)}"))

    def list(
        self, *, status: Optional[SessionStatus] = None, limit: Optional[int] = None
    ) -> Iterator[Session]:
        """The newest first, also those that have ended.

        :param limit: So many at most.
        """
        for item in self._transport.pages("/sessions", {"status": status}, "session_id", limit):
            yield shape(Session, item)


class OpenSession:
    """A session. Its calls run one at a time, in order. A ``with`` block closes it."""

    def __init__(self, transport: Transport, session_id: str) -> None:
        self._transport = transport
        self._path = f"/sessions/{step(session_id)}"
        self.id = session_id
        self.files = SessionFiles(transport, self._path)
        self.contexts = Contexts(transport, self._path)

    def __enter__(self) -> OpenSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OpenSession {self.id} of {self._transport.url}>"

    def run(
        self,
        code: Optional[str] = None,
        *,
        on_stdout: Optional[OnOutput] = None,
        on_stderr: Optional[OnOutput] = None,
        on_result: Optional[OnResult] = None,
        wait_s: float = math.inf,
        **fields: Unpack[CallRequestOptional],
    ) -> ExecutionRecord:
        """Runs code with the variables of earlier calls, to its end.

        ``record.results`` has what it displayed and the value of its last expression. Code that fails raises
        nothing, and the session goes on. If the call is interrupted, the code is, too; its variables stay.

        :param on_stdout: Is called with each piece of output as it happens; so is ``on_stderr``.
        :param on_result: Is called with each value that the code shows, as it happens.
        :param wait_s: See :meth:`airlock.Airlock.wait`.
        :param fields: See :meth:`submit`. Functions in ``tools`` run in this thread; their names go with the call.
        """
        job_id, tools = self.submit(code, **fields).job_id, fields.get("tools") or ()
        callbacks = Callbacks(on_stdout, on_stderr, on_result, tools)
        return run_to_end(self._transport, job_id, callbacks, wait_s)

    def submit(
        self, code: Optional[str] = None, **fields: Unpack[CallRequestOptional]
    ) -> SubmittedJob:
        """Queues a call, and does not wait for it. ``Airlock.wait`` and ``Airlock.stream`` take its ``job_id``.

        :param fields: ``command`` (a program with its arguments in place of code), ``context``, ``restart``,
            ``env``, ``files``, ``fetch``, ``input_data``, ``stdin``, ``tools`` (functions, or what a request says of
            them), ``tool_timeout``, ``timeout`` (seconds), ``queue_timeout``, ``metadata``, ``callback_url``,
            ``idempotency_key``.
        """
        body = given({"code": code, **fields})
        answer = self._transport.send("POST", f"{self._path}/execute/async", body=body)
        return shape(SubmittedJob, answer)

    def restart(self, context: Optional[str] = None) -> ExecutionRecord:
        """Starts an interpreter anew, once the calls before have ended: its variables go, files stay."""
        return self.run(**given({"context": context, "restart": True}))

    def interrupt(self) -> Interrupted:
        """Ends the running call, as Ctrl-C does; variables stay. The call's ``job_id`` is None if none ran."""
        return shape(Interrupted, self._transport.send("POST", f"{self._path}/interrupt"))

    def info(self) -> Session:
        """Its state: whether it is ready, or why it has ended."""
        return shape(Session, self._transport.send("GET", self._path))

    def update(self, **fields: Unpack[SessionPatch]) -> Session:
        """Changes what is given.

        :param fields: ``lifetime`` (seconds from now on), ``idle_timeout`` (seconds; None: never), ``metadata``.
        """
        return shape(Session, self._transport.send("PATCH", self._path, body=fields))

    def close(self) -> None:
        """Ends it, with its variables and files. A call that runs is cancelled."""
        self._transport.send("DELETE", self._path)


class SessionFiles:
    """Files of a session, in the order of its calls. Paths are relative to its working directory, /output."""

    def __init__(self, transport: Transport, session: str) -> None:
        self._transport = transport
        self._path = f"{session}/files"

    def write(self, path: str, body: Union[FileBody, str]) -> None:
        """Writes a file, and the folders of its path. Replaces an existing one.

        :param body: Text; bytes; ``Path("d.csv")`` for a file on disk; or an open binary file.
        """
        headers = {"Content-Type": "application/octet-stream"}
        with opened(body.encode() if isinstance(body, str) else body) as file:
            self._transport.send_bytes("PUT", self._of(path), None, file, headers)

    def read(self, path: str) -> bytes:
        """The whole file."""
        return b"".join(parts(self._transport, self._of(path)))

    def save(self, path: str, to: Union[str, PathLike[str]]) -> None:
        """Writes the file to disk as it arrives. Replaces an existing file, and makes its folder."""
        save(self._transport, self._of(path), to)

    def list(self, path: str = "") -> List[SessionFile]:
        """What a folder has, ordered by name."""
        answer: Dict[str, Any] = self._transport.send("GET", self._path, {"path": path or None})
        return [shape(SessionFile, item) for item in answer["items"]]

    def delete(self, path: str) -> None:
        """Removes a file, or a folder with all that it has."""
        self._transport.send("DELETE", self._of(path))

    def _of(self, path: str) -> str:
        return f"{self._path}/{'/'.join(map(step, path.split('/')))}"


class Contexts:
    """The interpreters of a session. Each has variables of its own; files are shared."""

    def __init__(self, transport: Transport, session: str) -> None:
        self._transport = transport
        self._path = f"{session}/contexts"

    def create(self) -> SessionContext:
        """Starts another interpreter. Calls choose it with ``context=it.context_id``."""
        return shape(SessionContext, self._transport.send("POST", self._path))

    def list(self) -> List[SessionContext]:
        """All of them, the first one ``default``."""
        answer: Dict[str, Any] = self._transport.send("GET", self._path)
        return [shape(SessionContext, item) for item in answer["items"]]

    def delete(self, context_id: str) -> None:
        """Ends one that has no open call."""
        self._transport.send("DELETE", f"{self._path}/{step(context_id)}")
