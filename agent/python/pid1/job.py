"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to the end of its one job.

The job's process: `python3 /code/main.py` as uid 1000, held at the gate until its code is there."""

import _signal as signal
import marshal
import os
import resource
import sys

from files import write_file
from kernel import become_unprivileged, make_pipes_for_code
from link import MAX_DATA
from relay import Stream

GATE_DIR = "/code/.gate"
_GATE = GATE_DIR + "/sitecustomize.pyc"
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
        go, self._go = os.pipe()
        self.tell, tell = os.pipe()
        out, err = make_pipes_for_code(2)
        self.streams = [Stream(out[0], b"O"), Stream(err[0], b"E")]
        theirs = (go, tell, out[1], err[1])
        start(*theirs)
        for fd in theirs:
            os.close(fd)

    def hear(self):
        """Reads the gate's message that the interpreter waits there, or notices that it has ended.
        """
        words = os.read(self.tell, 4096).decode("utf-8", "replace").split("\0")
        self.state = "failed"
        if len(words) < 3:
            return
        self.pid, self.start_cpu_ns = int(words[0]), int(words[1])
        self.preload_errors = dict(zip(words[2:-1:2], words[3:-1:2]))
        self.state = "ready"

    def go(self, inputs, orders):
        has_tools = INPUTS[b"F"] in inputs
        word = b"t" if has_tools else b"i" if inputs else b"g"
        if self.cells is not None:
            word = b"c" + len(self.cells).to_bytes(4, "big") + self.cells + word
        while word:
            word = word[os.write(self._go, word) :]
        if has_tools:
            self.calls = load("calls").Calls(self._go, orders["tool_timeout_ms"] / 1000)  # noqa: F821
        if self.cells is not None:
            self.told = Told(self.calls)

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

    def hear_last(self, outbox):
        """What the interpreter has told: the last exception and, of a cell, the rest of its items."""
        os.set_blocking(self.tell, False)
        told = self.told = self.told or Told()
        while self.hear_more(outbox):
            pass
        return {"exception": told.exception, **({} if self.cells is None else {"results_truncated": told.is_cut})}


class Told:
    """Reads the messages of gate.py, results.py and tools.py: kind (1 byte), length (4 bytes, big-endian), payload.

    e an exception  y an item  q a call of a tool  t something was left out of the results
    """

    def __init__(self, calls=None):
        self.exception = None
        self.is_cut = self._is_broken = False
        self._calls = calls
        self._buffer = bytearray()
        self._left = 0  # bytes of the item or call that has begun
        self._frame = None  # the type of its frames; None: it is left out
        self._items, self._bytes = _MOST_ITEMS, _MOST_BYTES

    def take(self, data, outbox):
        if self._is_broken:
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
            self._calls.begin()
            outbox.hurry()
        return piece

    def _take_message(self):
        kind, size = bytes(self._buffer[:1]), int.from_bytes(self._buffer[1:5], "big")
        if len(self._buffer) < 5:
            return False
        # Otherwise it is not the gate's: the code found the descriptor.
        self._is_broken = not self._may_be(kind, size)
        comes_in_pieces = kind in (b"y", b"q")
        if self._is_broken or (not comes_in_pieces and len(self._buffer) < 5 + size):
            return False
        if comes_in_pieces:
            self._frame = b"Q" if kind == b"q" else self._admit_item(size)
            self._left, size = size, 0
        elif kind == b"e":
            names, _, message = self._buffer[5 : 5 + size].decode("utf-8", "replace").partition("\0\0")
            self.exception = {"mro": names.split("\0"), "message": message}
        else:
            self.is_cut = True
        del self._buffer[: 5 + size]
        return True

    def _may_be(self, kind, size):
        if kind == b"q":
            return self._calls is not None and size > 0 and self._calls.admit(size)
        return kind in (b"e", b"y", b"t") and size <= (_MOST_OF_MESSAGE if kind == b"y" else _MAX_REPORT)

    def _admit_item(self, size):
        is_admitted = self._items > 0 and size <= self._bytes
        self._items -= 1
        self._bytes -= size if is_admitted else 0
        self.is_cut |= not is_admitted
        return b"H" if is_admitted else None


class Interpreter:
    """An interpreter that runs one job and is started before the job is known."""

    def __init__(self, codes, preload):
        self._gate, self.cells = codes["gate"], codes["cells"]
        self._preload = preload

    def start(self, go, tell, out, err):
        """Starts the interpreter, which imports what it preloads and then waits."""
        go_fd, tell_fd = _high_descriptors()
        os.mkdir(GATE_DIR, 0o755)
        python_path = os.environ.get("PYTHONPATH")
        _write_gate(self._gate, (go_fd, tell_fd, None, GATE_DIR, python_path, tuple(self._preload)))
        if os.fork() == 0:
            try:
                null = os.open(os.devnull, os.O_RDONLY)
                env = dict(os.environ)
                env.setdefault("PYTHONUNBUFFERED", "1")
                env["PYTHONPATH"] = ":".join(filter(None, [GATE_DIR, python_path]))
                descriptors = {0: null, 1: out, 2: err, go_fd: go, tell_fd: tell}
                exec_as_code(["python3", "/code/main.py"], descriptors, env)
            except BaseException as error:
                os.write(err, repr(error).encode())
                os._exit(127)

    def release(self):
        """Removes what only the start of the interpreter needed."""
        os.unlink(_GATE)
        os.rmdir(GATE_DIR)


def _high_descriptors():
    """High numbers for go and tell that code rarely uses, but below the limit of select(2)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = min(soft, 1024) if soft > 0 else 1024
    return top - 2, top - 1


def _write_gate(gate, settings):
    """Writes a .pyc file whose one constant "settings" is these. Its form: PEP 552, marshal."""
    constants = tuple([settings if value == "settings" else value for value in gate.co_consts])
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    write_file(_GATE, magic + bytes(12) + marshal.dumps(gate.replace(co_consts=constants)))


def exec_as_code(arguments, descriptors, env):
    """Becomes a program with the rights of the code, in a session of its own, with these descriptors by number."""
    os.setsid()
    prefer_for_oom()
    become_unprivileged()
    # Other programs expect the default effect of those that Python ignores or handles.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    for target, fd in descriptors.items():
        os.dup2(fd, target)
    os.chdir("/output")
    os.execvpe(arguments[0], arguments, dict(env, HOME="/tmp"))


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
