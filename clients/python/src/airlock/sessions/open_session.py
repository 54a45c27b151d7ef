"""A session, and the calls in it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Optional

from ..jobs.follow import Callbacks, OnOutput, OnResult
from ..jobs.wait import run_to_end
from ..record import shape
from ..tools.describe import given
from ..transport.transport import Transport, step
from ..types import CallRequestOptional, ExecutionRecord, Interrupted, Session, SessionPatch, SubmittedJob
from .contents import Contexts, SessionFiles

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
