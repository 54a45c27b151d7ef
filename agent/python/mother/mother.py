"""Runs in the mother, as root of its container, from the container's start to its end.

PID 1 of the mother: starts zygotes, and has jobs forked from them.

It owns the control groups, passes the jobs' bytes on (switch.py), and never runs or reads a byte of
a job or of a job's image. Its end is the end of every zygote and job.
"""

import json
import os
import resource
import select
import signal

import groups as control_groups
from ids import CodeIds
from jobs import Job
from link import to_json
from switch import Switch
from zygotes import Zygote, begin

_RETRY_MS = 20
_UNLIMITED = 1 << 20


class Mother:
    def __init__(self, settings):
        self.settings = settings
        self.switch = Switch(0, 1)
        self.groups = control_groups.open_groups()
        self.code_ids = CodeIds()
        self.most_signals = signals_of_job(settings["slots"])
        self.zygotes = {}
        self.jobs = {}
        self._handlers = {}
        self._poll = select.epoll()
        self._writes = False
        # Jobs whose data can be read; left out of the poll while the stream to the agent is full.
        self.readable = select.epoll()
        self.readers = {}
        # Jobs that have ended and whose last bytes wait for credit.
        self.dying = set()
        self._reads_jobs = True
        self.handle(self.switch.fd_in, self.take_frames)
        self.handle(self.readable.fileno(), self.read_jobs)
        self._leftover_groups = []
        self._child_events, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.handle(self._child_events, self.reap)

    def reap(self):
        """Zygotes become children of PID 1 when what started them has ended."""
        os.read(self._child_events, 4096)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def handle(self, fd, handler, events=select.EPOLLIN):
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def forget(self, fd):
        if self._handlers.pop(fd, None):
            self._poll.unregister(fd)

    def run(self):
        begin(self.settings)
        self.put_json(0, b"H", {"machine": os.uname().machine})
        while True:
            for job in list(self.dying):
                job.finish()
            self.switch.write()
            self.follow_stream()
            waits = _RETRY_MS / 1000 if self._leftover_groups else -1
            for fd, handler in [(fd, self._handlers[fd]) for fd, _ in self._poll.poll(waits)]:
                # An earlier one may have closed this descriptor, and its number may be another's now.
                if self._handlers.get(fd) is handler:
                    handler()
            self._leftover_groups = [left for left in self._leftover_groups if not control_groups.remove(left)]

    def follow_stream(self):
        """Waits for the stream to take more where something waits for it, and reads jobs where it has room."""
        writes = not self.switch.empty
        if writes != self._writes:
            self._writes = writes
            if writes:
                self.handle(self.switch.fd_out, lambda: None, select.EPOLLOUT)
            else:
                self.forget(self.switch.fd_out)
        reads = not self.switch.full
        if reads != self._reads_jobs:
            self._reads_jobs = reads
            if reads:
                self.handle(self.readable.fileno(), self.read_jobs)
            else:
                self.forget(self.readable.fileno())

    def put_json(self, number, kind, value):
        self.switch.put(number, kind, to_json(value))

    def take_frames(self):
        for number, kind, payload in self.switch.read():
            if kind == b"Z":
                self.start_zygote(number, json.loads(payload))
            elif kind == b"X":
                if number in self.zygotes:
                    self.zygotes[number].retire()
            elif kind == b"P":
                self.switch.put(number, b"P")
            elif kind == b"O":
                self.open_job(number, json.loads(payload))
            elif number in self.jobs:
                self.jobs[number].take(kind, payload)

    def start_zygote(self, number, order):
        try:
            self.zygotes[number] = Zygote(self, number, order)
        except OSError as error:
            self.put_json(number, b"N", {"problem": str(error), "output": ""})

    def open_job(self, number, order):
        zygote = self.zygotes.get(order["zygote"])
        try:
            if zygote is None:
                raise OSError("its zygote has ended")
            self.jobs[number] = Job(self, zygote, number, order)
        except OSError as error:
            self.put_json(number, b"G", {"problem": str(error), "oom_kills": 0, "zygote_ended": zygote is None})

    def read_jobs(self):
        """Reads one piece of each job that has one, so that none holds up the others."""
        for fd, _ in self.readable.poll(0):
            if fd in self.readers:
                self.readers[fd].read()

    def drop_groups(self, groups):
        if not control_groups.remove(groups):
            self._leftover_groups.append(groups)


def signals_of_job(slots):
    """Each job's part of the pending signals, which the kernel counts for the creator of all zygotes' namespaces too.

    Source: user_namespaces(7).
    """
    most = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
    return max(1, (_UNLIMITED if most == resource.RLIM_INFINITY else most) // (slots + 1))


def main(settings):
    if os.getpid() != 1:
        raise SystemExit("not PID 1")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    Mother(settings).run()
