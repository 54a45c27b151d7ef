"""Sessions: interpreters that remember from call to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Optional

from ..record import shape
from ..transport.part import Part
from ..transport.transport import step
from ..types import Session, SessionRequest, SessionStatus
from .open_session import OpenSession

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
