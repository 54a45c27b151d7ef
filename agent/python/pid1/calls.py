"""Runs in PID 1 of a sandbox, as root of the sandbox, from the first line of the code to the end of its job or call.

Calls of the caller's functions, if the job brought some: how many wait and how long, and the answers that the code has
not read yet."""

import os
import select
import time

from link import MAX_DATA

# As in tools.py of the interpreter.
_MOST_PENDING, _MOST_CALLS, _MOST_OF_CALL, _MOST_OF_CALLS = 32, 1000, 1 << 20, 32 << 20


class Calls:
    """The orders have the longest time that calls may wait, all together."""

    def __init__(self, fd, orders):
        os.set_blocking(fd, False)
        self._fd = fd
        self._unread = bytearray()
        self._limit_s = orders["tool_timeout_ms"] / 1000
        self._waited_s = self._since = 0.0
        self._pending = 0
        self._calls, self._bytes = _MOST_CALLS, _MOST_OF_CALLS

    def admit(self, size):
        """Whether a call of so many bytes may come."""
        self._calls -= 1
        self._bytes -= size
        is_within = self._calls >= 0 and self._bytes >= 0 and size <= _MOST_OF_CALL
        return is_within and self._pending < _MOST_PENDING

    def begin(self):
        if self._pending == 0:
            self._since = time.monotonic()
        self._pending += 1

    def waited_s(self):
        """For how long at least one call has waited: time that is not the code's."""
        now = time.monotonic() - self._since if self._pending else 0.0
        return min(self._limit_s, self._waited_s + now)

    def take(self, payload):
        """A piece of an answer."""
        self._unread += payload[1:]
        if payload[0] == 0:
            self._waited_s = self.waited_s()
            self._since = time.monotonic()
            self._pending -= 1
        self.write()

    def to_poll(self):
        return [(self._fd, select.POLLOUT, self.write)] if self._unread else []

    def write(self):
        """Gives the code what its pipe has room for. PID 1 never waits for the code."""
        try:
            while self._unread:
                del self._unread[: os.write(self._fd, self._unread[:MAX_DATA])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unread.clear()  # the code has closed it

    def close(self):
        """What reads answers then comes to their end."""
        os.close(self._fd)
