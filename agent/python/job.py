"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to its end.

What PID 1 runs for a job: `python3 /code/main.py` as uid 1000, held at the gate until its code is there, or a program
of the image in its place. Its streams, what its interpreter tells, and the code's calls of the caller's functions."""

import _signal as signal
import errno
import os
import select
import sys
import time

from kernel import become_unprivileged, make_pipes_for_code, write_file
from link import MAX_DATA

# Where the gate finds stdin and arguments, and tools.py the caller's functions, by the frames that bring them.
INPUTS = {b"T": "/input/_stdin", b"V": "/input/_args", b"F": "/input/_tools"}
_MAX_REPORT = 4000
# As in cells.py.
_MOST_ITEMS, _MOST_BYTES, _MOST_OF_MESSAGE = 1000, 8 << 20, 1 << 20
# As in tools.py.
_MOST_PENDING, _MOST_CALLS, _MOST_OF_CALL, _MOST_OF_CALLS = 32, 1000, 1 << 20, 32 << 20
_MAX_TAIL = 1024 * 1024
_MAX_SAID = 16 * 1024


class Job:
    """One run. `start` makes its process from four descriptors: go, tell, stdout, stderr.

    `state` is "starting", then "ready" once it waits at the gate, or "failed". With `codes`, the bytecode of
    modules by name, the code runs as a cell.
    """

    codes = calls = None

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
        """Reads the gate's message that the interpreter waits there, or notices that it has ended."""
        words = os.read(self.tell, 4096).decode("utf-8", "replace").split("\0")
        self.state = "failed"
        if len(words) < 3 or not (words[0] + words[1]).isdecimal():
            return
        self.pid, self.start_cpu_ns = int(words[0]), int(words[1])
        self.preload_errors = dict(zip(words[2:-1:2], words[3:-1:2]))
        self.state = "ready"

    def go(self, inputs, orders):
        word = word_to_go(inputs)
        if self.codes is not None:
            word = code_words(self.codes, "tools", "cells") + word
        self.write(word)
        if INPUTS[b"F"] in inputs:
            self.calls = Calls(self.go_fd, orders)
        if self.codes is not None:
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
        return {"exception": told.exception, **({} if self.codes is None else {"results_truncated": told.is_cut})}


class Told:
    """Reads the messages of gate.py, cells.py and tools.py: kind (1 byte), length (4 bytes, big-endian), payload.

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


class Calls:
    """Calls of the caller's functions, if the job brought some: how many wait and how long, and the answers that the
    code has not read yet. The orders have the longest time that calls may wait, all together.
    """

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
        """Reads what is in the pipe now; once the writers are dead, that is at most the pipe's size."""
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


class Program:
    """One run of a program, with the interface of Job. `stream` is the class of its streams."""

    state = "ready"
    told = calls = None
    to_read, end = Job.to_read, Job.end

    def __init__(self, arguments, stream, env):
        self._arguments, self._env = arguments, env
        self.start_cpu_ns = 0
        out, err = make_pipes_for_code(2)
        self.streams = [stream(out[0], b"O"), stream(err[0], b"E")]
        self._theirs = (out[1], err[1])

    def go(self, inputs, _orders=None):
        self.pid = os.fork()
        if self.pid == 0:
            try:
                stdin = os.open(INPUTS[b"T"] if INPUTS[b"T"] in inputs else os.devnull, os.O_RDONLY)
                descriptors = dict(enumerate((stdin, *self._theirs)))
                exec_as_code(self._arguments, descriptors, self._env)
            except OSError as error:
                is_missing = error.errno == errno.ENOENT
                why = "the image has no such program" if is_missing else error.strerror
                said = "airlock: %s: %s\n" % (os.fsdecode(self._arguments[0]), why)
                os.write(2, said.encode("utf-8", "replace"))
                os._exit(127 if is_missing else 126)
            finally:
                os._exit(126)
        close_all(self._theirs)
        self._theirs = ()

    def close(self):
        close_all((*self._theirs, *(stream.fd for stream in self.streams)))

    def hear_last(self, outbox):
        return {"exception": None}


class Kept(Stream):
    """Keeps the beginning of a stream."""

    def read(self, outbox):
        try:
            chunk = os.read(self.fd, MAX_DATA)
        except BlockingIOError:
            return False
        self.open = bool(chunk)
        self.early = (self.early + chunk)[:_MAX_SAID]
        return self.open


def prepare_program(supervisor):
    """Ends the interpreter and runs the compiler. Returns how the job ended, or None if the program can run."""
    compile_ms, count, *arguments = supervisor.program
    compiler, command = arguments[: int(count)], arguments[int(count) :]
    supervisor.clear()
    if compiler:
        ending = _compile(supervisor, compiler, int(compile_ms))
        if ending is not None:
            return ending
    supervisor.job = Program(command + _read_arguments(supervisor.inputs), supervisor.stream, supervisor.env)
    return None


def _compile(supervisor, compiler, limit_ms):
    job = supervisor.job = Program(compiler, Kept, supervisor.env)
    began = time.monotonic()
    job.go(())
    supervisor.tell_start()
    ending = supervisor.wait_for_end(began + limit_ms / 1000)
    ended, status = supervisor.exit or (time.monotonic(), 9)
    supervisor.settle()
    for stream in job.streams:
        stream.drain(None)
    said = (stream.early for stream in job.streams)
    stdout, stderr = (text[: whole_length(text)].decode("utf-8", "replace") for text in said)
    report = {
        **exit_of(status),
        "timed_out": ending == "timeout",
        "stdout": stdout,
        "stderr": stderr,
        "wall_ms": (ended - began) * 1000,
    }
    supervisor.outbox.put_json(b"Y", report)
    if ending == "exited" and status == 0:
        supervisor.clear()
        return None
    return "exited" if ending == "timeout" else ending


def _read_arguments(inputs):
    if INPUTS[b"V"] not in inputs:
        return []
    with open(INPUTS[b"V"], "rb") as file:
        return file.read().split(b"\0")[:-1]


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


def close_all(descriptors):
    for fd in descriptors:
        os.close(fd)


def word_to_go(inputs):
    """t the code has tools of its caller  i it has inputs  g it has neither"""
    return b"t" if INPUTS[b"F"] in inputs else b"i" if inputs else b"g"


def code_words(codes, *names):
    """The words to the gate that bring modules: their names, a NUL, and bytecode."""
    modules = [name.encode() + b"\0" + codes[name] for name in names]
    return b"".join([b"c" + len(module).to_bytes(4, "big") + module for module in modules])


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
    # zygotes.ts gives forks the same.
    env = dict(env, HOME="/tmp")
    env.setdefault("USER", "user")
    env.setdefault("LOGNAME", "user")
    if not (env.get("LC_ALL") or env.get("LANG")):
        env["LANG"] = "C.UTF-8"
    os.execvpe(arguments[0], arguments, env)


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
