"""Runs in PID 1 of a sandbox, as root of the sandbox, from the start of a session to its end.

A session: interpreters that stay, and the calls that they serve, one at a time.

The words of a call each begin with a letter:
n its number  c its context  l another context that is left  r restart it first  e a variable of its environment
f a file to send  o no other file is sent
"""

import _signal as signal
import os
import time

from context import KILL_S, CallStream, Context, Nothing, free_groups, kill_processes, send_signal
from files import begin_file, write_file
from job import INPUTS, Job, file_limits, fork_to
from kernel import take_rights_of_code
from supervisor import Supervisor
from usage import children_cpu_ms, cpu_ms_of, others_cpu_ms

_ENV, _CALL, _BROUGHT = "/code/.env", "/code/.call", "/code/.brought"
_INTERRUPT_S, _FOREVER_S = 2, float("inf")
# No signal interrupts a compilation. Shorter code takes less than _INTERRUPT_S on any machine.
_LONG_CODE, _COMPILE_S = 64 << 10, 60
_NO_PROCESS = {"mro": ["builtins.OSError", "builtins.Exception"], "message": "the session has no process left"}


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
        return Context(job, self.interpreter.cells, self.interpreter.serve)

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
            if os.stat(self.code_file).st_size > _LONG_CODE:
                self.wait_for(lambda: self.exit is not None or context.told.is_compiled, _COMPILE_S)
        else:
            # A program that has just begun has no group yet.
            self.wait_for(lambda: self.exit is not None or os.getpgid(self.job.pid) == self.job.pid, _INTERRUPT_S)
            self.signal_group(signal.SIGINT)
        self.wait_for(lambda: self.exit is not None, _INTERRUPT_S)
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
            load("collect")  # noqa: F821  its loader gives it this
            load("call_files").write_files(pairs, say)  # noqa: F821

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
        load("collect")  # noqa: F821
        fetch = self.call.get(b"f", [])
        collector = load("call_files").CallCollector  # noqa: F821
        collector(self.outbox.fd, *file_limits(self.orders), self.since_ns, self.scanned_ns, fetch).run()


def _variables(words):
    """By name, from words NAME=value."""
    texts = (word if isinstance(word, str) else word.decode() for word in words)
    return dict(text.split("=", 1) for text in texts if text)
