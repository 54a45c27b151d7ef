"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to its end.

The job's process: `python3 /code/main.py` as uid 1000, held at the gate until its code is there."""

import _signal as signal
import os
import sys

from files import write_file
from kernel import become_unprivileged, make_pipes_for_code
from link import MAX_DATA
from relay import Stream

# Where the gate finds stdin and arguments, and tools.py the caller's functions, by the frames that bring them.
INPUTS = {b"T": "/input/_stdin", b"V": "/input/_args", b"F": "/input/_tools"}
_MAX_REPORT = 4000
# As in cells.py.
_MOST_ITEMS, _MOST_BYTES, _MOST_OF_MESSAGE = 1000, 8 << 20, 1 << 20


class Job:
    """One run. `start` makes its process from four descriptors: go, tell, stdout, stderr.

    `state` is "starting", then "ready" once it waits at the gate, or "failed". With `cells`, the bytecode of
    cells.py, the code runs as a cell.
    """

    cells = calls = None

    def __init__(self, start):
        self.state = "starting"
        self.pid = self.told = None
        go, self.go_fd = os.pipe()
        self.tell, tell = os.pipe()
        out, err = make_pipes_for_code(2)
        self.streams = [Stream(out[0], b"O"), Stream(err[0], b"E")]
        theirs = (go, tell, out[1], err[1])
        try:
            start(*theirs)
        except OSError:
            close_all((*theirs, self.go_fd, self.tell, out[0], err[0]))
            raise
        close_all(theirs)

    def close(self):
        close_all((self.go_fd, self.tell, *(stream.fd for stream in self.streams)))

    def hear(self):
        """Reads the gate's message that the interpreter waits there, or notices that it has ended.
        """
        words = os.read(self.tell, 4096).decode("utf-8", "replace").split("\0")
        self.state = "failed"
        if len(words) < 3 or not (words[0] + words[1]).isdecimal():
            return
        self.pid, self.start_cpu_ns = int(words[0]), int(words[1])
        self.preload_errors = dict(zip(words[2:-1:2], words[3:-1:2]))
        self.state = "ready"

    def go(self, inputs, orders):
        word = word_to_go(inputs)
        if self.cells is not None:
            word = code_word(self.cells) + word
        self.write(word)
        if INPUTS[b"F"] in inputs:
            self.calls = load("calls").Calls(self.go_fd, orders)  # noqa: F821
        if self.cells is not None:
            self.told = Told(self.calls)

    def write(self, words):
        while words:
            words = words[os.write(self.go_fd, words) :]

    def to_read(self, outbox):
        """Descriptors with what reads them."""
        if self.state == "starting":
            found = {self.tell: self.hear}
        elif outbox.full:
            return {}
        else:
            found = {self.tell: lambda: self.hear_more(outbox)} if self.told else {}
        for stream in self.streams:
            if stream.open:
                found[stream.fd] = lambda stream=stream: stream.read(outbox)
        return found

    def hear_more(self, outbox):
        """Relays items of a cell; False if there is nothing to read."""
        # What the code wrote before an item goes first: cells.py waits until the item is read.
        for stream in self.streams:
            if stream.open:
                stream.read(outbox)
        try:
            data = os.read(self.tell, MAX_DATA)
        except BlockingIOError:
            return False
        self.told.take(data, outbox)
        return data != b""

    def end(self, outbox):
        """Sends the rest of its output. Returns what the interpreter has told: the last exception and, of a cell,
        whether items were left out.
        """
        for stream in self.streams:
            stream.drain(outbox)
        told = self.hear_last(outbox)
        for stream in self.streams:
            stream.finish(outbox)
        return told

    def hear_last(self, outbox):
        os.set_blocking(self.tell, False)
        told = self.told = self.told or Told()
        while self.hear_more(outbox):
            pass
        return {"exception": told.exception, **({} if self.cells is None else {"results_truncated": told.is_cut})}


class Told:
    """Reads the messages of gate.py, results.py and tools.py: kind (1 byte), length (4 bytes, big-endian), payload.

    e an exception  y an item  q a call of a tool  t something was left out of the results
    """

    most = {b"e": _MAX_REPORT, b"y": _MOST_OF_MESSAGE, b"t": _MAX_REPORT}

    def __init__(self, calls=None):
        self.is_broken = False
        self.calls = calls
        self._buffer = bytearray()
        self._left = 0  # bytes of the item or call that has begun
        self.begin()

    def begin(self):
        self.exception = None
        self.is_cut = False
        self._frame = None  # the type of the frames of what has begun; None: it is left out
        self._items, self._bytes = _MOST_ITEMS, _MOST_BYTES

    def take(self, data, outbox):
        if self.is_broken:
            return
        self._buffer += data
        while self._take_piece(outbox) if self._left else self._take_message():
            pass

    def _take_piece(self, outbox):
        """In a frame: 1, or 0 with the last piece; and the piece."""
        piece = bytes(self._buffer[:MAX_DATA])[: self._left]
        del self._buffer[: len(piece)]
        self._left -= len(piece)
        if piece and self._frame:
            outbox.put(self._frame, (b"\1" if self._left else b"\0") + piece)
        if self._frame == b"Q" and self._left == 0:
            self.calls.begin()
            outbox.hurry()
        return piece

    def _take_message(self):
        kind, size = bytes(self._buffer[:1]), int.from_bytes(self._buffer[1:5], "big")
        if len(self._buffer) < 5:
            return False
        # Otherwise it is not the gate's: the code found the descriptor.
        self.is_broken = not self._may_be(kind, size)
        comes_in_pieces = kind in (b"y", b"q")
        if self.is_broken or (not comes_in_pieces and len(self._buffer) < 5 + size):
            return False
        if comes_in_pieces:
            self._frame = b"Q" if kind == b"q" else self._admit_item(size)
            self._left, size = size, 0
        else:
            self._hear(kind, bytes(self._buffer[5 : 5 + size]))
        del self._buffer[: 5 + size]
        return not self.is_broken

    def _hear(self, kind, payload):
        if kind == b"e":
            names, _, message = payload.decode("utf-8", "replace").partition("\0\0")
            self.exception = {"mro": names.split("\0"), "message": message}
        else:
            self.is_cut = True

    def _may_be(self, kind, size):
        if kind == b"q":
            return self.calls is not None and size > 0 and self.calls.admit(size)
        return size <= self.most.get(kind, -1)

    def _admit_item(self, size):
        is_admitted = self._items > 0 and size <= self._bytes
        self._items -= 1
        self._bytes -= size if is_admitted else 0
        self.is_cut |= not is_admitted
        return b"H" if is_admitted else None


def close_all(descriptors):
    for fd in descriptors:
        os.close(fd)


def word_to_go(inputs):
    """t the code has tools of its caller  i it has inputs  g it has neither"""
    return b"t" if INPUTS[b"F"] in inputs else b"i" if inputs else b"g"


def code_word(code):
    """The word to the gate that brings bytecode."""
    return b"c" + len(code).to_bytes(4, "big") + code


def exec_as_code(arguments, descriptors, env, groups=()):
    """Becomes a program with the rights of the code, in a session of its own, with these descriptors by number."""
    os.setsid()
    prefer_for_oom()
    become_unprivileged(groups)
    # Other programs expect the default effect of those that Python ignores or handles.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    for target, fd in descriptors.items():
        os.dup2(fd, target)
    os.chdir("/output")
    os.execvpe(arguments[0], arguments, dict(env, HOME="/tmp"))


def fork_to(act):
    """Runs `act` in a child process, which ends with it. Returns the child's pid."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return pid


def exit_of(status):
    """How a process ended, for a report: its exit status or its signal."""
    signaled = os.WIFSIGNALED(status)
    return {
        "exit_status": None if signaled else os.WEXITSTATUS(status),
        "exit_signal": os.WTERMSIG(status) if signaled else None,
    }


def prefer_for_oom():
    """Makes the kernel's OOM killer choose the calling process, not PID 1."""
    try:
        write_file("/proc/self/oom_score_adj", b"1000")
    except OSError:
        pass


def file_limits(orders):
    return [orders[name] for name in ("artifact_bytes", "artifact_count", "result_bytes")]
