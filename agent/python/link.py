"""Runs in the mother, a zygote, PID 1 and the installer, as root, from the start of each to its end.

The link to the agent: frames of type (1 byte), length (4 bytes, big-endian) and payload.

to the supervisor    J job (numbers)  C code  I input  T stdin  V arguments, each with a NUL behind it
                     W a program in place of Python, after J: name of the file of code, ms for the compiler, number
                       of its arguments, its arguments, those of the program; a NUL between two
                     F functions of the caller (JSON)
                     G go  K cancel
                     Y a piece of an answer to a call, before it 1, or 0 with the last piece; an answer is its length
                       (4 bytes, big-endian) and JSON
                     M name of a file below /input, or of a call an absolute one below /output  U its data, before
                       the job
                     N the first: a session begins, with its environment; each other one: a call, before its other
                       frames: words of session.py; a NUL between two
                     L lines of /input/_requirements.txt, before the job
                     P packages (JSON), before the job: packages.py says what follows
                     B bytecode of modules, before the first session or cell, if the program came as bytecode
to the agent         B bytecode of this program, if it came as text, and another one of what comes with the other B
                     R ready (JSON)  F failed to get ready (JSON)  S started
                     Y end of the compiler (JSON)  O stdout  E stderr  X exit (JSON)
                     H a piece of an item of a cell (JSON), before it 1, or 0 with the last piece
                     Q the same of a call of one of the caller's functions (JSON)
                     A head of a file (JSON)  D its data  Z summary of /output (JSON), the last frame of a job
"""

import os
import time

try:
    from _json import encode_basestring_ascii as _quoted
except ImportError:
    from json.encoder import encode_basestring_ascii as _quoted

MAX_DATA = 64 * 1024
MAX_PAYLOAD = 256 * 1024

_HEAD = 5
_ENOUGH = 1024 * 1024
_DELAY_S = 0.005


class Inbox:
    """Frames from the agent. The end of the stream means that the agent has died: this process ends."""

    def __init__(self, fd):
        self.fd = fd
        self._buffer = bytearray()

    def read(self):
        """Reads once and yields the frames that are complete."""
        chunk = os.read(self.fd, MAX_DATA)
        if not chunk:
            raise SystemExit(0)
        self._buffer += chunk
        while len(self._buffer) >= _HEAD:
            end = _HEAD + int.from_bytes(self._buffer[1:_HEAD], "big")
            if end > _HEAD + MAX_PAYLOAD:
                raise ValueError("frame too long")
            if len(self._buffer) < end:
                return
            kind, payload = bytes(self._buffer[:1]), bytes(self._buffer[_HEAD:end])
            del self._buffer[:end]
            yield kind, payload


class Outbox:
    """Frames to the agent, which may be slow: writing never blocks, and `full` stops the producers.

    While it is `patient`, it holds frames for a moment to send more of them in one write. Each write
    wakes the engine's processes one after the other, which takes longer than a short job.
    """

    def __init__(self, fd):
        self.fd = fd
        self.patient = False
        self._buffer = bytearray()
        self._delayed_since = 0.0
        os.set_blocking(fd, False)

    @property
    def empty(self):
        return not self._buffer

    @property
    def full(self):
        return len(self._buffer) >= _ENOUGH

    @property
    def delay_ms(self):
        """Milliseconds until the held frames must be written."""
        if not self.patient or len(self._buffer) >= MAX_DATA:
            return 0.0
        return max(0.0, self._delayed_since + _DELAY_S - time.monotonic()) * 1000

    def put(self, kind, payload=b""):
        if self.empty:
            self._delayed_since = time.monotonic()
        self._buffer += frame_head(kind, len(payload))
        self._buffer += payload

    def hurry(self):
        """Writes the held frames without delay."""
        self._delayed_since = 0.0

    def put_json(self, kind, value):
        self.put(kind, to_json(value))

    def write(self):
        with memoryview(self._buffer) as view:
            try:
                sent = os.write(self.fd, view[:MAX_DATA])
            except BlockingIOError:
                sent = 0
        del self._buffer[:sent]


def frame_head(kind, length):
    return kind + length.to_bytes(4, "big")


def to_json(value):
    """Like json.dumps. Importing json would take as long as everything else that PID 1 does."""
    return _json_of(value).encode()


def _json_of(value):
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return "{%s}" % ",".join(["%s:%s" % (_quoted(key), _json_of(value[key])) for key in value])
    if isinstance(value, (list, tuple)):
        return "[%s]" % ",".join(map(_json_of, value))
    return repr(value)


def from_numbers(payload):
    """Parses integers by name, such as b"timeout_ms=500 grace_ms=20"."""
    words = (word.split("=") for word in payload.decode().split())
    return {name: int(number) for name, number in words}
