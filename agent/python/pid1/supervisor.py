"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to its end.

Runs one job and reports it to the agent, or becomes a Session. See link.py for the frames. Any error in here ends PID 1,
and with it every process of the container."""

import _signal as signal  # the module around it imports enum, which takes longer than all of PID 1
import os
import select
import sys
import time

from files import begin_file, write_file
from job import INPUTS, Job, exit_of, file_limits, fork_to
from link import Inbox, Outbox, from_numbers
from kernel import become_unprivileged, remove_ipc_of_code
from relay import Stream
from usage import Watch, children_cpu_ms, count_oom_kills, memory_left, others_cpu_ms

_REAP_LIMIT_S = 5
# The collector takes up to 1 MiB of the memory that the code has left free.
_COLLECTOR_BYTES = 4 << 20


class Supervisor:
    # What programs get instead of Python's code.
    stream, env = Stream, os.environ

    def __init__(self, interpreter):
        self.inbox = Inbox(0)
        self.outbox = Outbox(1)
        self.packages = self.input_file = self.program = None
        self.code_file = "/code/main.py"
        self.interpreter = interpreter
        self.child_events, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.orders = self.exit = self.collector = None
        self.may_go = self.cancelled = self.childless = False
        self.max_rss_kb = 0
        self.watch = Watch()
        self.job = Job(interpreter.start)

    def run(self):
        self.get_ready()
        while not self.may_go:
            self.wait_and_handle()
            if self.exit is not None:
                # Ends the container: the agent then runs the job in another one.
                raise SystemExit("the interpreter ended before its job came")
        self.run_job()

    def run_job(self):
        ending = self.prepare()
        oom_kills = count_oom_kills()
        for stream in self.job.streams:
            stream.begin(self.orders["stream_bytes"])
        self.cpu_before_ms = children_cpu_ms() + self.job.start_cpu_ns / 1e6
        self.others_cpu_before_ms = others_cpu_ms()
        started = time.monotonic()
        if ending is None:
            self.start_job()
            self.tell_start()
            ending = self.wait_for_end(started + self.orders["timeout_ms"] / 1000)
        ended_by_itself = self.exit is not None
        self.settle()
        self.report(ending, started, ended_by_itself and count_oom_kills() > oom_kills)
        self.collect()

    def start_job(self):
        self.job.go(self.inputs, self.orders)

    def prepare(self):
        """Returns how the job ended if it needs no run."""
        return None if self.program is None else load("program").prepare(self)  # noqa: F821

    def tell_start(self):
        """Before the code runs: if the whole container dies after this, the code is the cause."""
        if not self.outbox.patient:
            self.outbox.put(b"S")
            self.outbox.write()
            self.outbox.patient = True

    def get_ready(self):
        while self.job.state == "starting":
            self.wait_and_handle()
        if self.job.state == "failed":
            self.fail("the interpreter ended before it was ready")
        self.interpreter.release()
        version = "%d.%d.%d" % sys.version_info[:3]
        self.outbox.put_json(b"R", {"python_version": version, "preload_errors": self.job.preload_errors})

    def fail(self, message):
        self.kill_all()
        for stream in self.job.streams:
            stream.drain(self.outbox)
        output = b"".join(stream.early for stream in self.job.streams)
        self.outbox.put_json(b"F", {"message": message, "output": output.decode("utf-8", "replace")})
        self.flush()
        raise SystemExit(1)

    def wait_for_end(self, deadline):
        """Waits for the job's end, or forces it."""
        watch = self.watch.begin(self.orders["max_sockets"])
        while self.exit is None:
            now = time.monotonic()
            until = deadline + (self.job.calls.waited_s() if self.job.calls else 0)
            if self.cancelled or now >= until:
                ending = "cancelled" if self.cancelled else "timeout"
                self.terminate()
                return ending
            excess = watch.look(now) if now >= watch.due else None
            if excess:
                return excess
            self.wait_and_handle(min(watch.due, until))
        return "exited"

    def terminate(self):
        """Asks every process of the job to end, and gives its first process a grace period."""
        self.signal_all(signal.SIGTERM)
        grace_over = time.monotonic() + self.orders["grace_ms"] / 1000
        while self.exit is None and time.monotonic() < grace_over:
            self.wait_and_handle(grace_over)

    def settle(self):
        """Ends what the code left running."""
        self.kill_all()

    def clear(self):
        """Makes room for a program."""
        self.kill_all()
        self.exit = None
        self.childless = False
        self.max_rss_kb = 0

    def kill_all(self):
        """Kills all other processes. The wait is bounded, because a process may be stuck in the kernel."""
        limit = time.monotonic() + _REAP_LIMIT_S
        while not self.childless and time.monotonic() < limit:
            self.signal_all(signal.SIGKILL)
            self.wait_and_handle(time.monotonic() + 0.02)

    def signal_all(self, number):
        try:
            os.kill(-1, number)
        except (ProcessLookupError, PermissionError):
            # Debian 13's AppArmor denies it under root's Podman. The end of PID 1 ends what is left.
            pass

    def report(self, ending, started, out_of_memory):
        ended, status = self.exit or (time.monotonic(), signal.SIGKILL)
        told = self.job.end(self.outbox)
        end = exit_of(status)
        report = {
            "ending": ending,
            **end,
            "out_of_memory": end["exit_signal"] == signal.SIGKILL and out_of_memory,
            **told,
            "wall_ms": max(0.0, ended - started) * 1000,
            "cpu_ms": self.cpu_ms(),
            "max_rss_bytes": self.max_rss_kb * 1024,
            "truncated": [stream.truncated for stream in self.job.streams],
        }
        self.outbox.put_json(b"X", report)

    def cpu_ms(self):
        """CPU time of the job. If a process ignores SIGCHLD, only the cgroup counts its children."""
        waited_for = children_cpu_ms() - self.cpu_before_ms
        return max(0.0, waited_for, others_cpu_ms() - self.others_cpu_before_ms)

    def collect(self):
        """Sends /output from a child with the rights of the code, so that no file can trick root."""
        if not self.has_files():
            self.tell_skipped([])
            return
        self.make_room()
        self.flush()
        os.set_blocking(self.outbox.fd, True)
        self.collector = fork_to(self.send_files)
        self.wait_for_collector()
        os.set_blocking(self.outbox.fd, False)

    def make_room(self):
        """Frees memory for the collector. The size limits of /output, /tmp and /dev/shm leave room. What else outlives
        the code's processes is removed.
        """
        if memory_left() < _COLLECTOR_BYTES:
            remove_ipc_of_code()

    def has_files(self):
        return os.listdir("/output") != []

    def wait_for_collector(self):
        while self.collector is not None:
            self.wait_and_handle()

    def tell_skipped(self, skipped):
        """Ends a job whose files nobody sends."""
        self.outbox.put_json(b"Z", {"result_problem": None, "skipped": skipped})
        self.flush()

    def send_files(self):
        become_unprivileged()
        load("collect").Collector(self.outbox.fd, *file_limits(self.orders)).run()  # noqa: F821

    def flush(self):
        self.outbox.patient = False
        while not self.outbox.empty:
            self.wait_and_handle()

    def wait_and_handle(self, until=None):
        """Waits for events, at most until a monotonic time, and handles them."""
        timeout_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000
        handlers = {self.inbox.fd: self.take_orders, self.child_events: self.reap}
        handlers.update(self.to_read())
        poll = select.poll()
        for fd in handlers:
            poll.register(fd, select.POLLIN)
        for source in filter(None, (self.packages, self.job.calls)):
            for fd, events, handler in source.to_poll():
                handlers[fd] = handler
                poll.register(fd, events)
        if not self.outbox.empty:
            delay_ms = self.outbox.delay_ms
            if delay_ms > 0:
                timeout_ms = delay_ms if timeout_ms is None else min(timeout_ms, delay_ms)
            else:
                handlers[self.outbox.fd] = self.outbox.write
                poll.register(self.outbox.fd, select.POLLOUT)
        for fd, _ in poll.poll(timeout_ms):
            handlers[fd]()

    def to_read(self):
        return self.job.to_read(self.outbox)

    def take_orders(self):
        for kind, payload in self.inbox.read():
            self.obey(kind, payload)

    def obey(self, kind, payload):
        if kind == b"J":
            self.inputs = set()
            self.orders = from_numbers(payload)
            if "results" in self.orders:
                self.job.cells = self.interpreter.cells
            write_file(self.code_file, b"")
            write_file("/input/data.json", b"")
        elif kind == b"W":
            os.unlink(self.code_file)
            name, *self.program = payload.split(b"\0")
            self.code_file = b"/code/" + name
            write_file(self.code_file, b"")
        elif kind == b"C":
            write_file(self.code_file, payload, os.O_APPEND)
        elif kind == b"I":
            write_file("/input/data.json", payload, os.O_APPEND)
        elif kind in INPUTS:
            write_file(INPUTS[kind], payload, os.O_APPEND)
            self.inputs.add(INPUTS[kind])
        elif kind == b"G":
            for path in (self.code_file, "/input/data.json", *self.inputs):
                os.chmod(path, 0o444)
            self.may_go = True
        elif kind == b"K":
            self.cancelled = True
        elif kind == b"Y":
            if self.job.calls:  # else it is late: the call of the session has ended
                self.job.calls.take(payload)
        elif kind == b"M":
            self.input_file = begin_file("/input/" + payload.decode(), self.input_file)
        elif kind == b"U":
            while payload:
                payload = payload[os.write(self.input_file, payload) :]
        elif kind == b"B":
            self.interpreter.take_modules(payload)
        elif kind == b"N":
            load("context")  # noqa: F821  its loader gives it this
            self.__class__ = load("session").Session  # noqa: F821
            self.begin(payload)
        elif kind == b"L":
            write_file("/input/_requirements.txt", payload)
        elif kind == b"P":
            self.packages = self.interpreter.begin_packages(self.outbox, payload)
        elif self.packages:
            self.packages.take(kind, payload)

    def reap(self):
        os.read(self.child_events, 4096)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if self.packages and pid == self.packages.pid:
                self.packages.ended(status)
                continue
            self.reaped(pid, status, usage)

    def reaped(self, pid, status, usage):
        if pid == self.collector:
            self.collector = None
            if status != 0:
                raise SystemExit("/output could not be collected")
            return
        self.max_rss_kb = max(self.max_rss_kb, usage.ru_maxrss)
        if pid == self.job.pid:
            self.exit = (time.monotonic(), status)
