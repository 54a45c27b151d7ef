"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to the end of its one job.

Sends a stream of the job to the agent; over the cap, the middle is left out."""

import os

from link import MAX_DATA

_MAX_TAIL = 1024 * 1024


def whole_length(data):
    """Length of `data` without an incomplete UTF-8 character at its end."""
    for length in range(1, min(3, len(data)) + 1):
        byte = data[-length]
        if byte & 0xC0 != 0x80:
            return len(data) - length if byte >= (0xC0, 0xE0, 0xF0)[length - 1] else len(data)
    return len(data)


def length_of_rest(data):
    """Number of bytes at the beginning of `data` that belong to a character that began before it."""
    return next((at for at, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), min(3, len(data)))


class Stream:
    """Relays a pipe: its head at once, and the last bytes of the rest at the end. It cuts no character.

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
        # The incomplete character at the end of what has come.
        self._begun = b""
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
            rest = length_of_rest(self._tail)
            del self._tail[:rest]
            outbox.put(self.kind, b"\n[airlock: %d bytes left out]\n" % (left_out + rest))
        if self._begun:
            outbox.put(self.kind, self._begun)
            self._begun = b""
        for start in range(0, len(self._tail), MAX_DATA):
            outbox.put(self.kind, self._tail[start : start + MAX_DATA])

    def _keep(self, chunk):
        self.early = (self.early + chunk)[-4096:]

    def _relay(self, chunk, outbox):
        self.total += len(chunk)
        data, self._begun = self._begun + chunk, b""
        if self._head_left:
            head = data[: self._head_left]
            whole = whole_length(head)
            if whole:
                outbox.put(self.kind, head[:whole])
            self._head_left -= whole
            if len(data) == len(head) < self._head_left + whole:
                self._begun = head[whole:]
                return
            # The tail begins with a whole character.
            self._tail_size += self._head_left
            self._head_left = 0
            data = data[whole:]
        self._tail += data
        del self._tail[: max(0, len(self._tail) - self._tail_size)]
