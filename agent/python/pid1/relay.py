"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to the end of its one job.

Sends a stream of the job to the agent; over the cap, the middle is left out."""

import os

from link import MAX_DATA

_MAX_TAIL = 1024 * 1024


class Stream:
    """Relays a pipe: its head at once, and the last bytes of the rest at the end.

    Until `begin` everything is dropped, except a little that `early` keeps for error messages.
    """

    def __init__(self, fd, kind):
        self.fd = fd
        self.kind = kind
        self.open = True
        self.early = b""
        self.total = 0
        self._head_left = self._cap = 0
        self._tail = bytearray()
        self._relaying = False
        os.set_blocking(fd, False)

    def begin(self, cap):
        self.drain(None)
        self._relay_up_to(cap)

    def _relay_up_to(self, cap):
        self._relaying = True
        self._cap = cap
        self._tail_size = min(cap // 2, _MAX_TAIL)
        self._head_left = cap - self._tail_size

    @property
    def truncated(self):
        return self.total > self._cap

    def read(self, outbox):
        """Reads one chunk; False if there was none."""
        try:
            chunk = os.read(self.fd, MAX_DATA)
        except BlockingIOError:
            return False
        if not chunk:
            self.open = False
        elif self._relaying:
            self._relay(chunk, outbox)
        else:
            self._keep(chunk)
        return self.open

    def drain(self, outbox):
        """Reads what is in the pipe now; once the writers are dead, that is at most the pipe's
        size.
        """
        while self.open and self.read(outbox):
            pass

    def finish(self, outbox):
        """Sends the tail, after a line with the number of bytes left out before it."""
        left_out = self.total - self._cap
        if left_out > 0:
            outbox.put(self.kind, b"\n[airlock: %d bytes left out]\n" % left_out)
        for start in range(0, len(self._tail), MAX_DATA):
            outbox.put(self.kind, self._tail[start : start + MAX_DATA])

    def _keep(self, chunk):
        self.early = (self.early + chunk)[-4096:]

    def _relay(self, chunk, outbox):
        self.total += len(chunk)
        head, rest = chunk[: self._head_left], chunk[self._head_left :]
        if head:
            self._head_left -= len(head)
            outbox.put(self.kind, head)
        self._tail += rest
        del self._tail[: max(0, len(self._tail) - self._tail_size)]
