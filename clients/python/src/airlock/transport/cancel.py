"""Ending calls from another thread."""

from __future__ import annotations

import socket
import threading
from typing import Optional, Set


class Cancel:
    """Ends the calls that were given it: their sockets are closed, their pauses end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: Set[socket.socket] = set()
        self._event = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        with self._lock:
            self._event.set()
            sockets = list(self._sockets)
        for sock in sockets:
            _shut(sock)

    def watch(self, sock: Optional[socket.socket]) -> None:
        """Closes the socket too when it is cancelled, at once if it is already."""
        if sock is None:
            return
        with self._lock:
            self._sockets.add(sock)
        if self.is_set:
            _shut(sock)

    def forget(self, sock: Optional[socket.socket]) -> None:
        with self._lock:
            if sock is not None:
                self._sockets.discard(sock)

    def sleep(self, seconds: float) -> None:
        self._event.wait(seconds)


def _shut(sock: socket.socket) -> None:
    # Closing alone does not wake the thread that reads from it.
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
