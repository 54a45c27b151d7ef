"""Runs in the mother, as root of its container, from the container's start to its end.

The mother's end of the engine's stream, which carries the frames of many jobs.

A frame: number of a job or zygote (4 bytes), type (1 byte), length (4 bytes, big-endian), payload.

to the mother    Z start a zygote (JSON)  X let a zygote end when its last job has
                 P are you alive? (asked while a zygote starts)
                 O open a job (JSON)  D data  C credit  K kill
to the agent     H hello (JSON), the first frame
                 Y a zygote is ready (JSON)  N it failed or ended (JSON)  P the mother is alive
                 D data  C credit  E stderr of the job's PID 1  G the job is gone (JSON)

Data of a job may be sent as far as its credit goes, in bytes: WINDOW at the beginning, more with each
C (4 bytes). So one job that is not read, or does not read, holds nobody else up, and what is kept
for it is bounded.
"""

import collections
import os

HEAD = 9
WINDOW = 256 * 1024
PIECE = 32 * 1024
MAX_PAYLOAD = 1024 * 1024
_ENOUGH = 512 * 1024


class Switch:
    """Frames in and out; writing never blocks, and control frames overtake data."""

    def __init__(self, fd_in, fd_out):
        self.fd_in, self.fd_out = fd_in, fd_out
        self._incoming = bytearray()
        self._control = bytearray()
        self._data = collections.deque()
        self._data_bytes = 0
        self._writing = memoryview(b"")
        os.set_blocking(fd_out, False)

    def read(self):
        """Reads once and yields the frames that are complete: (number, type, payload)."""
        chunk = os.read(self.fd_in, MAX_PAYLOAD)
        if not chunk:
            raise SystemExit(0)  # the agent is dead, or has no more use for this container
        self._incoming += chunk
        at = 0
        while len(self._incoming) - at >= HEAD:
            start = at + HEAD
            end = start + int.from_bytes(self._incoming[start - 4 : start], "big")
            if end - start > MAX_PAYLOAD:
                raise ValueError("frame too long")
            if len(self._incoming) < end:
                break
            number = int.from_bytes(self._incoming[at : at + 4], "big")
            yield number, bytes(self._incoming[at + 4 : at + 5]), bytes(self._incoming[start:end])
            at = end
        del self._incoming[:at]

    def put(self, number, kind, payload=b""):
        self._control += _head(number, kind, payload) + payload

    def put_data(self, number, data):
        self.put_last(number, b"D", data)

    def put_last(self, number, kind, payload):
        """Puts a frame that must not overtake data."""
        self._data.append(_head(number, kind, payload) + payload)
        self._data_bytes += HEAD + len(payload)

    @property
    def full(self):
        """Whether no more data should be put now."""
        return self._data_bytes >= _ENOUGH

    @property
    def empty(self):
        return not (self._writing or self._control or self._data)

    def write(self):
        """Writes as much as the stream takes."""
        while not self.empty:
            if not self._writing:
                self._writing = memoryview(self._next())
            try:
                sent = os.write(self.fd_out, self._writing)
            except BlockingIOError:
                return
            self._writing = self._writing[sent:]

    def _next(self):
        """All control frames, and data up to a piece: many small frames share a write."""
        taken, self._control = self._control, bytearray()
        while self._data and len(taken) < PIECE:
            frame = self._data.popleft()
            self._data_bytes -= len(frame)
            taken += frame
        return bytes(taken)


def _head(number, kind, payload):
    return number.to_bytes(4, "big") + kind + len(payload).to_bytes(4, "big")
