"""Runs in PID 1 of a sandbox and the collector, as root or the code's effective user, from a session's start to its end.

A session: interpreters that stay, and the calls that they serve, one at a time. Their streams are relayed during calls.
The files of a call: what it has written or fetches, what it brings, while processes of the session may change them.

The words of a call each begin with a letter:
n its number  c its context  l another context that is left  r restart it first  e a variable of its environment
f a file to send  o no other file is sent
"""

import _signal as signal
import os
import time
from fcntl import ioctl

from collector import Collector
from job import INPUTS, Calls, Job, Stream, Told, code_words, file_limits, fork_to, whole_length, word_to_go
from kernel import begin_file, read_lines, take_rights_of_code, write_file
from link import MAX_DATA, to_json
from supervisor import Supervisor, children_cpu_ms, cpu_ms_of, others_cpu_ms

_ENV, _CALL, _BROUGHT = "/code/.env", "/code/.call", "/code/.brought"
_INTERRUPT_S, _NUDGE_S, _FOREVER_S = 2, 0.05, float("inf")
# Until an interpreter listens. With _INTERRUPT_S and KILL_S, it is less than the agent waits (sandbox/conversation.ts).
_LISTEN_S = 7
# No signal interrupts a compilation. Shorter code takes less than _INTERRUPT_S on any machine.
_LONG_CODE, _COMPILE_S = 64 << 10, 60
_NO_PROCESS = {"mro": ["builtins.OSError", "builtins.Exception"], "message": "the session has no process left"}
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
# A folder on the way to a file. Without O_PATH, older versions of gVisor follow a link.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FETCHED = "_fetched/"
_CLOCK_REALTIME_COARSE = 5
# A tick is 10 ms at most.
_NAP_S, _MOST_NAPS = 0.0005, 40
_MAY_FETCH = ("output", "tmp", "input")


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


class Session(Supervisor):
    """What a Supervisor becomes with the order for a session."""

    stream = CallStream

    def begin(self, payload):
        write_file(_ENV, payload)
        self.variables = _variables(payload.split(b"\0"))
        os.mkdir(_BROUGHT, 0o755)
        self.brought = []
        self.scanned_ns = 0
        self.contexts = {"default": self.serve(self.job)}
        # By name, what kill_processes knows the processes of a context by.
        self.groups = {"default": ()}
        self.job = Nothing()

    def serve(self, job):
        return Context(job, self.interpreter.codes)

    def run_job(self):
        while True:
            super().run_job()
            self.wait_for(lambda: self.may_go)

    def obey(self, kind, payload):
        if kind == b"N":
            self.begin_call(payload)
        elif kind == b"M" and payload[:1] == b"/":
            name = payload.decode().partition("/output/")[2]
            source = "%s/%d" % (_BROUGHT, len(self.brought))
            self.brought.append((source, name))
            self.input_file = begin_file(source, self.input_file)
        else:
            super().obey(kind, payload)

    def begin_call(self, payload):
        words = payload.split(b"\0")
        self.call = {}
        for word in words:
            self.call.setdefault(word[:1], []).append(word[1:].decode())
        self.env = {**os.environ, **self.variables, **_variables(self.call.get(b"e", []))}
        # PID 1 cannot open files for writing again that nobody may write.
        for path in (self.code_file, "/code/main.py", "/input/data.json", _CALL, *INPUTS.values()):
            if os.path.lexists(path):
                os.unlink(path)
        self.drop_brought()
        self.code_file = "/code/main.py"
        self.program = self.exit = None
        self.may_go = self.cancelled = False
        self.max_rss_kb = 0
        write_file(_CALL, payload)

    def drop_brought(self):
        for source, _ in self.brought:
            os.unlink(source)
        self.brought = []

    def prepare(self):
        self.tell_start()
        name, *_ = self.call[b"c"]
        for other in self.groups.keys() - {"default", name, *self.call.get(b"l", [])}:
            self.end_context(other)
            del self.groups[other]
        problem = self.brought and self.write_brought()
        if problem:
            return self.end_with(1, Nothing(problem))
        if b"r" in self.call:
            self.end_context(name)
            self.start_context(name)
        if self.program is not None:
            return super().prepare()
        if not self.has_code():
            return self.end_with(0)
        if name not in self.contexts:
            self.start_context(name)
        context = self.contexts.get(name)
        if context is None or not context.is_alive:
            self.end_with(1)
            return "cancelled" if self.cancelled else "interpreter_ended"
        self.job = context
        return None

    def start_job(self):
        if not self.others_cpu_before_ms and isinstance(self.job, Context):
            self.cpu_before_ms += cpu_ms_of(self.job.pid)
        try:
            super().start_job()
        except OSError:
            self.close_program()
            self.end_with(126, Nothing(_NO_PROCESS))

    def has_code(self):
        return self.program is not None or os.stat(self.code_file).st_size > 0

    def end_with(self, status, job=None):
        self.job = job or Nothing()
        self.exit = (time.monotonic(), status << 8)
        return "exited"

    def start_context(self, name):
        try:
            groups = self.groups.setdefault(name, free_groups(self.groups.values()))
            job = Job(lambda *pipes: self.interpreter.start(*pipes, groups))
        except OSError:
            return  # no process is left for it
        self.starting = job
        self.wait_for(lambda: job.state != "starting" or self.cancelled, self.orders["timeout_ms"] / 1000)
        self.starting = None
        self.interpreter.release()
        try:
            if job.state == "ready":
                self.contexts[name] = self.serve(job)
                return
        except OSError:
            pass  # it was killed as soon as it was ready
        job.close()  # which ends it

    def end_context(self, name):
        """Ends an interpreter with all processes that its code has left; everything, if there is no other one."""
        context = self.contexts.get(name)
        if context is not None:
            context.kill()
            self.wait_for(lambda: not context.is_alive, KILL_S)
            del self.contexts[name]
            context.close()
        is_alone = not any(other.is_alive for other in self.contexts.values())
        if is_alone or (name in self.groups and not kill_processes(self.groups[name], self.wait_for)):
            self.kill_all()

    def kill_all(self):
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return  # no end of a child will come
        self.childless = False
        super().kill_all()

    def wait_for(self, is_so, seconds=_FOREVER_S):
        """Waits for something, while the code may do what it likes: all of it ends if it makes too much."""
        watch = self.watch.begin(self.orders["max_sockets"])
        limit = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() >= limit:
                return False
            self.wait_and_handle(min(watch.due, limit))
            now = time.monotonic()
            if now >= watch.due and watch.look_between_calls(now):
                self.kill_all()
        return True

    def wait_for_collector(self):
        self.wait_for(lambda: self.collector is None)

    def terminate(self):
        context = self.job
        if isinstance(context, Context):
            context.interrupt()
            self.wait_for(lambda: self.exit is not None or context.told.listens, _LISTEN_S)
            if os.stat(self.code_file).st_size > _LONG_CODE:
                self.wait_for(lambda: self.exit is not None or context.told.is_compiled, _COMPILE_S)
        else:
            # A program that has just begun has no group yet.
            self.wait_for(lambda: self.exit is not None or os.getpgid(self.job.pid) == self.job.pid, _INTERRUPT_S)
            self.signal_group(signal.SIGINT)
        limit = time.monotonic() + _INTERRUPT_S
        while not self.wait_for(lambda: self.exit is not None, _NUDGE_S) and time.monotonic() < limit:
            if isinstance(context, Context):
                context.nudge()
        if self.exit is None:
            self.signal_group(signal.SIGKILL)
            self.wait_for(lambda: self.exit is not None, KILL_S)

    def signal_group(self, number):
        send_signal(os.killpg, self.job.pid, number)

    def settle(self):
        if self.exit is None:
            self.kill_all()
        elif isinstance(self.job, Context):
            self.max_rss_kb = max(self.max_rss_kb, self.job.peak_kb())
        elif self.job.pid is not None:
            self.signal_group(signal.SIGKILL)

    def clear(self):
        self.close_program()
        self.exit = None
        self.max_rss_kb = 0

    def close_program(self):
        if not isinstance(self.job, (Context, Nothing)):
            self.job.close()
        self.job = Nothing()

    def cpu_ms(self):
        """Other processes of the session count, too, if a control group counts them."""
        if self.others_cpu_before_ms:
            return max(0.0, others_cpu_ms() - self.others_cpu_before_ms)
        return max(0.0, children_cpu_ms() + cpu_ms_of(self.job.pid) - self.cpu_before_ms)

    def to_read(self):
        found = {}
        for context in self.contexts.values():
            if not (context is self.job and self.outbox.full):
                found.update(context.to_read(self.outbox))
        if isinstance(self.job, Context) and self.job.tell in found:
            found[self.job.tell] = self.hear
        elif not isinstance(self.job, (Context, Nothing)):
            found.update(self.job.to_read(self.outbox))
        if self.starting is not None:
            found.update(self.starting.to_read(self.outbox))
        return found

    starting = None

    def hear(self):
        self.job.hear(self.outbox)
        status = self.job.told.status
        if status is not None and self.exit is None:
            self.exit = (time.monotonic(), status << 8)

    def reaped(self, pid, status, usage):
        for context in self.contexts.values():
            if context.pid == pid:
                context.is_alive = False
        if self.exit is None or pid != self.job.pid:
            super().reaped(pid, status, usage)

    def write_brought(self):
        """Returns the exception that prevented it."""
        said, say = os.pipe()
        pairs = self.brought

        def act():
            take_rights_of_code()
            write_files(pairs, say)

        try:
            self.collector = fork_to(act)
        except OSError:
            os.close(said)
            os.close(say)
            return _NO_PROCESS
        os.close(say)
        self.wait_for_collector()
        words = os.read(said, 65536).decode("utf-8", "replace")
        os.close(said)
        self.drop_brought()
        classes, _, message = words.partition("\0\0")
        return {"mro": classes.split("\0"), "message": message} if words else None

    def collect(self):
        # The next call may come before the end of the child that sends the last frame of this one.
        self.may_go = False
        self.close_program()
        # A call without code sends what it fetches alone.
        self.since_ns = None
        if self.has_code() and b"o" not in self.call:
            self.since_ns, self.scanned_ns = self.scanned_ns, time.time_ns()
        try:
            super().collect()
        except OSError:
            # No process is left for it.
            os.set_blocking(self.outbox.fd, False)
            self.tell_skipped([{"reason": "unreadable", "count": 1, "names": ["/output"]}])

    def has_files(self):
        return b"f" in self.call or (self.since_ns is not None and super().has_files())

    def make_room(self):
        """Removes nothing: code of the session goes on between calls."""

    def send_files(self):
        take_rights_of_code()
        fetch = self.call.get(b"f", [])
        limits = file_limits(self.orders)
        CallCollector(self.outbox.fd, *limits, self.since_ns, self.scanned_ns, fetch).run()


class ToldByCells(Told):
    """s: the interpreter listens  b: long code has been compiled  x: a cell has ended, with this exit status."""

    most = {**Told.most, b"e": 4 << 16, b"s": 0, b"b": 0, b"x": 3}
    listens = False

    def begin(self):
        super().begin()
        self.status = None
        self.is_compiled = False

    def end(self):
        """Drops the items of threads that go on."""
        self._items = 0
        self._frame = None

    def _hear(self, kind, payload):
        if kind == b"s":
            self.listens = True
        elif kind == b"b":
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

    def __init__(self, job, codes):
        self._job, self.pid, self.tell = job, job.pid, job.tell
        self.streams = [CallStream(stream.fd, stream.kind) for stream in job.streams]
        self.told = ToldByCells()
        self.told.end()
        self.is_alive = self._hears = True
        os.set_blocking(self.tell, False)
        job.write(code_words(codes, "tools", "cells", "serve") + b"s")
        os.set_blocking(job.go_fd, False)

    def go(self, inputs, orders):
        self.told.begin()
        try:
            if INPUTS[b"F"] in inputs:
                os.mkfifo(_ANSWERS, 0o644)
                # Also for reading: so it waits for no reader, and cannot lack one.
                answers = os.open(_ANSWERS, os.O_RDWR)
                self.calls = self.told.calls = Calls(answers, orders)
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

    def nudge(self):
        """Ends a wait that began between the arrival of an interrupt and Python's look for it. By default, an interpreter
        that does not listen yet ignores this signal."""
        self._signal(os.kill, signal.SIGURG)

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


class CallCollector(Collector):
    """Sends the files whose inodes have changed after a time in ns (none if it is None), then those to fetch.

    The next call sends those that change after `now_ns`."""

    # Each later call finds them again, and is not to blame.
    too_many = too_deep = "not_searched"
    # No room is made for more while code of the session goes on.
    piece_bytes = MAX_DATA

    def __init__(self, fd, max_bytes, max_files, max_result_bytes, since_ns, now_ns, fetch):
        super().__init__(fd, max_bytes, max_files, max_result_bytes)
        self._since_ns = since_ns
        self._now_ns = now_ns
        self._fetch = fetch

    def run(self):
        if self._since_ns is None:
            self._summarize()
        else:
            self._await_tick()
            super().run()

    def _await_tick(self):
        """The kernel stamps changes with its clock's last tick: one in this tick could belong to either call."""
        for _ in range(_MOST_NAPS):  # the clock may be set back
            if time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) > self._now_ns:
                break
            time.sleep(_NAP_S)

    def _summarize(self):
        for path in self._fetch:
            self._send_fetched(path)
        super()._summarize()

    def _send_result(self, root):
        found = self._look_at(root, "result.json")
        if found and found.st_ctime_ns > self._since_ns:
            super()._send_result(root)

    def _consider(self, directory, name, path, found):
        if path.startswith(_FETCHED):
            self._skip("unsafe_name", path)
        # Code can set st_mtime, but not st_ctime.
        elif found.st_ctime_ns > self._since_ns:
            super()._consider(directory, name, path, found)

    def _instead(self, path, size):
        self._skip("changed", path)
        return b""

    def _send_fetched(self, path):
        parts = path.split("/")[1:] if path[:1] == "/" else ["output", *path.split("/")]
        if parts[0] not in _MAY_FETCH or len(parts) < 2 or not _is_plain(parts):
            self._skip("unsafe_name", path)
            return
        directory = os.open("/", _FOLDER)
        for part in parts[:-1]:
            inner = self._open(directory, part, _FOLDER)
            os.close(directory)
            if inner is None:
                self._skip("missing", path)
                return
            directory = inner
        found = self._look_at(directory, parts[-1])
        if found is None:
            self._skip("missing", path)
        else:
            super()._consider(directory, parts[-1], _FETCHED + path.lstrip("/"), found)
        os.close(directory)

    def _open_up(self, directory):
        pass

    def _look_at(self, directory, name):
        try:
            return super()._look_at(directory, name)
        except OSError:
            return None

    def _open(self, directory, name, flags):
        try:
            return os.open(name, flags, dir_fd=directory)
        except OSError:
            return None


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


def _variables(words):
    """By name, from words NAME=value."""
    texts = (word if isinstance(word, str) else word.decode() for word in words)
    return dict(text.split("=", 1) for text in texts if text)


def write_files(files, said):
    """Copies files to names below /output. Writes to `said` why that failed: the classes of the exception, words."""
    for source, name in files:
        try:
            _write(source, name.split("/"))
        except (OSError, ValueError) as error:
            classes = ["%s.%s" % (each.__module__, each.__qualname__) for each in type(error).__mro__]
            words = "/output/%s cannot be written: %s" % (name, getattr(error, "strerror", None) or error)
            os.write(said, "\0".join([*classes, "", words]).encode("utf-8", "replace"))
            return


def _write(source, parts):
    if not _is_plain(parts):
        raise ValueError("this is no path below /output")
    directory = os.open("/output", _FOLDER)
    for part in parts[:-1]:
        try:
            os.mkdir(part, 0o755, dir_fd=directory)
        except FileExistsError:
            pass
        directory = os.open(part, _FOLDER, dir_fd=directory)
    try:
        os.unlink(parts[-1], dir_fd=directory)
    except FileNotFoundError:
        pass
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    target = os.open(parts[-1], how, 0o644, dir_fd=directory)
    with open(source, "rb") as file:
        for piece in iter(lambda: file.read(MAX_DATA), b""):
            while piece:
                piece = piece[os.write(target, piece) :]
    os.close(target)


def _is_plain(parts):
    return not any(part in ("", ".", "..") for part in parts)
