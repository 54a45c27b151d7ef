"""Runs in PID 1 of a sandbox, as root of the sandbox, from the start of a session to its end.

An interpreter that stays, with its streams: they are relayed during its calls."""

import _signal as signal
import os
import time
from fcntl import ioctl

from files import read_lines
from job import INPUTS, Job, Told, code_word, word_to_go
from link import MAX_DATA, to_json
from relay import Stream, whole_length

# A FIFO, which brings a call answers to its tools. The interpreter's pipe brings it the next calls.
_ANSWERS = "/code/.answers"
_MAX_EARLY = 64 * 1024
_FIONREAD = 0x541B
# In a frame, which has other things too.
_MAX_MESSAGE_JSON = 200_000
KILL_S = 5
# A context other than the first has one of these groups, which no process can leave. Without root's rights, a group
# without files gives no rights.
_GROUPS = range(59_000, 59_008)
# gate.py tells 16 classes at most, by 100 characters.
_MAX_NAMES = 16 * 1024


def waiting(fd):
    """Bytes that a pipe has now."""
    return int.from_bytes(ioctl(fd, _FIONREAD, bytes(4)), "little")


def free_groups(used):
    return next((group,) for group in _GROUPS if (group,) not in used)


def processes_with(groups):
    """The processes of a context, wherever they are in the tree of processes."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdecimal() and name != "1":
            try:
                lines = read_lines("/proc/%s/status" % name)
            except OSError:
                continue  # it has ended
            if any(line[:7] == "Groups:" and tuple(map(int, line.split()[1:])) == groups for line in lines):
                found.add(int(name))
    return found


def kill_processes(groups, wait_for):
    """Ends the processes of a context. False if some may be left."""
    limit = time.monotonic() + KILL_S
    # One that is stopped does not fork, and does not make room for others.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        seen, found = set(), processes_with(groups)
        while found and time.monotonic() < limit:
            for pid in found:
                send_signal(os.kill, pid, number)
            seen |= found
            found = processes_with(groups) - seen
    return wait_for(lambda: not processes_with(groups), KILL_S)


def send_signal(send, pid, number):
    try:
        send(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class CallStream(Stream):
    """Relays a pipe during calls. What comes between two calls is kept for the next one, up to a limit."""

    def __init__(self, fd, kind):
        super().__init__(fd, kind)
        self._dropped = 0
        # The incomplete character at the end of what was dropped.
        self._late = b""

    def begin(self, cap):
        self.total = 0
        self._tail.clear()
        self._relay_up_to(cap)

    def read(self, outbox):
        if self._relaying and self.early:
            early, self.early = self.early, b""
            if self._dropped:
                early += b"\n[airlock: %d bytes left out]\n" % self._dropped + self._late
                self._dropped, self._late = 0, b""
            self._relay(early, outbox)
        return super().read(outbox)

    def drain(self, outbox):
        """Reads what is in the pipe now. Its writers may go on."""
        for _ in range(waiting(self.fd) // MAX_DATA + 1):
            if not (self.open and self.read(outbox)):
                break

    def finish(self, outbox):
        super().finish(outbox)
        self._relaying = False

    def _keep(self, chunk):
        if not self._dropped:
            self.early += chunk
            if len(self.early) <= _MAX_EARLY:
                return
            whole = whole_length(self.early[:_MAX_EARLY])
            self.early, chunk = self.early[:whole], self.early[whole:]
        dropped = self._late + chunk
        whole = whole_length(dropped)
        self._dropped += whole
        self._late = dropped[whole:]


class ToldByCells(Told):
    """b: long code has been compiled  x: a cell has ended, with this exit status."""

    most = {**Told.most, b"e": 4 << 16, b"b": 0, b"x": 3}

    def begin(self):
        super().begin()
        self.status = None
        self.is_compiled = False

    def end(self):
        """Drops the items of threads that go on."""
        self._items = 0
        self._frame = None

    def _hear(self, kind, payload):
        if kind == b"b":
            self.is_compiled = True
        elif kind != b"x":
            super()._hear(kind, payload)
        elif payload.isdigit() and int(payload) < 256:
            self.status = int(payload)
        else:
            self.is_broken = True
        if kind == b"e":
            if not 0 <= payload.find(b"\0\0") <= _MAX_NAMES:
                self.exception = None
                self.is_broken = True
                return
            while len(to_json(self.exception)) > _MAX_MESSAGE_JSON:
                self.exception["message"] = self.exception["message"][: len(self.exception["message"]) // 2]


class Context:
    """An interpreter that serves cells. Its calls have it as their job."""

    start_cpu_ns, calls = 0, None
    hear_more = Job.hear_more

    def __init__(self, job, cells, serve):
        self._job, self.pid, self.tell = job, job.pid, job.tell
        self.streams = [CallStream(stream.fd, stream.kind) for stream in job.streams]
        self.told = ToldByCells()
        self.told.end()
        self.is_alive = self._hears = True
        os.set_blocking(self.tell, False)
        job.write(code_word(cells) + code_word(serve) + b"s")
        os.set_blocking(job.go_fd, False)

    def go(self, inputs, orders):
        self.told.begin()
        try:
            if INPUTS[b"F"] in inputs:
                os.mkfifo(_ANSWERS, 0o644)
                # Also for reading: so it waits for no reader, and cannot lack one.
                answers = os.open(_ANSWERS, os.O_RDWR)
                self.calls = self.told.calls = load("calls").Calls(answers, orders)  # noqa: F821  see load
            self._job.write(word_to_go(inputs))
        except OSError:
            self.kill()

    def to_read(self, outbox):
        found = {self.tell: lambda: self.hear(outbox)} if self._hears else {}
        for stream in self.streams:
            if stream.open:
                found[stream.fd] = lambda stream=stream: stream.read(outbox)
        return found

    def hear(self, outbox):
        """Without its messages, an interpreter is of no use."""
        self._hears = self.hear_more(outbox) and not self.told.is_broken
        if not self._hears:
            self.kill()

    def end(self, outbox):
        for stream in self.streams:
            stream.drain(outbox)
        for _ in range(waiting(self.tell) // MAX_DATA + 1):
            self.hear_more(outbox)
        for stream in self.streams:
            stream.finish(outbox)
        if self.calls is not None:
            os.unlink(_ANSWERS)
            self.calls.close()
            self.calls = self.told.calls = None
        told, self.told.status = self.told, None
        told.end()
        return {"exception": told.exception, "results_truncated": told.is_cut}

    def interrupt(self):
        """Interrupts a call: the signal reaches code that runs, the word an interpreter that is about to run it."""
        try:
            self._job.write(b"k")
        except OSError:
            pass  # it has ended
        self._signal(os.kill, signal.SIGINT)

    def kill(self):
        self._signal(os.killpg, signal.SIGKILL)

    def _signal(self, send, number):
        if self.is_alive:
            send_signal(send, self.pid, number)

    def peak_kb(self):
        """Largest resident memory of its process since its start; gVisor tells the present one."""
        try:
            lines = dict(line.split(":", 1) for line in read_lines("/proc/%d/status" % self.pid))
            return int((lines.get("VmHWM") or lines["VmRSS"]).split()[0])
        except (OSError, KeyError, ValueError):
            return 0

    def close(self):
        self._job.close()


class Nothing:
    """The job of a call that runs no code, and of no call."""

    pid, start_cpu_ns, calls = None, 0, None

    class Silent:
        truncated = False

        def begin(self, _):
            pass

    streams = [Silent(), Silent()]

    def __init__(self, exception=None):
        self._exception = exception

    def end(self, _):
        return {"exception": self._exception}
