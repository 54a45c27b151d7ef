"""Runs in PID 1 and the installer, as root, from the start of pip to its end.

The tunnel from pip to the agent: a proxy's port on loopback, whose connections travel over the link.
It is closed before the code runs.

both ways       d data  w window: bytes passed on, as 4 bytes  e end of what this side says
                x the connection is over
to the agent    o opened
Each payload begins with the number of the connection, 4 bytes. A side sends at most WINDOW bytes more than
the other has passed on.
"""

import select
import socket

from link import MAX_DATA

WINDOW = 256 * 1024
_MAX_CONNECTIONS = 16


class Tunnel:
    def __init__(self, outbox):
        self._outbox = outbox
        self._connections = {}
        self._opened = 0
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def to_poll(self):
        """What to poll for: (descriptor, events, handler)."""
        if len(self._connections) < _MAX_CONNECTIONS:
            yield self._listener.fileno(), select.POLLIN, self._accept
        for connection in list(self._connections.values()):
            events = connection.events(self._outbox)
            if events:
                handler = lambda connection=connection: self._serve(connection)  # noqa: E731
                yield connection.fileno(), events, handler

    def take(self, kind, payload):
        """Handles a frame of the agent. A frame for a closed connection crossed its end and is
        ignored.
        """
        connection = self._connections.get(payload[:4])
        if connection is None:
            return
        if kind == b"x" and connection.pending and not connection.hears:
            connection.speaks = False  # what it sent before is passed on first
        elif kind == b"x":
            self._forget(connection)
        else:
            connection.take(kind, payload[4:])

    def close(self):
        self._listener.close()
        for connection in list(self._connections.values()):
            self._forget(connection)

    def _accept(self):
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return
        self._opened += 1
        number = self._opened.to_bytes(4, "big")
        self._connections[number] = _Connection(number, accepted)
        self._outbox.put(b"o", number)

    def _serve(self, connection):
        if connection.number not in self._connections:
            return
        try:
            connection.serve(self._outbox)
        except OSError:
            self._outbox.put(b"x", connection.number)
            connection.hears = connection.speaks = False
            connection.pending.clear()
        if connection.over:
            self._forget(connection)

    def _forget(self, connection):
        del self._connections[connection.number]
        connection.close()


class _Connection:
    def __init__(self, number, accepted):
        self.number = number
        self.hears = self.speaks = True  # the agent has more for it; it may have more for the agent
        self.pending = bytearray()  # from the agent, not yet passed on
        self._credit = WINDOW
        self._socket = accepted
        self._ended = False
        accepted.setblocking(False)
        self.fileno, self.close = accepted.fileno, accepted.close

    @property
    def over(self):
        return not (self.speaks or self.hears or self.pending)

    def events(self, outbox):
        may_read = self.speaks and self._credit > 0 and not outbox.full
        may_write = self.pending or not (self.hears or self._ended)
        return (select.POLLIN if may_read else 0) | (select.POLLOUT if may_write else 0)

    def take(self, kind, data):
        if kind == b"d":
            self.pending += data
        elif kind == b"w":
            self._credit += int.from_bytes(data, "big")
        elif kind == b"e":
            self.hears = False

    def serve(self, outbox):
        if self.pending:
            self._write(outbox)
        if not (self.hears or self.pending or self._ended):
            self._ended = True
            self._socket.shutdown(socket.SHUT_WR)
        if self.speaks and self._credit > 0:
            self._read(outbox)

    def _write(self, outbox):
        try:
            sent = self._socket.send(self.pending[:MAX_DATA])
        except BlockingIOError:
            return
        del self.pending[:sent]
        outbox.put(b"w", self.number + sent.to_bytes(4, "big"))

    def _read(self, outbox):
        try:
            chunk = self._socket.recv(min(self._credit, MAX_DATA))
        except BlockingIOError:
            return
        self._credit -= len(chunk)
        self.speaks = bool(chunk)
        outbox.put(b"d" if chunk else b"e", self.number + chunk)
