"""PID 1 of a sandbox that runs several jobs of one owner, each in its own process tree.

The interpreter starts once and stays at the gate (zygote.py); each job is a fork of it. Between two
jobs the container is wiped and checked. If it is not certain that nothing is left, PID 1 says so
and ends.
"""

import _socket
import contextlib
import os
import signal
import sys
import time

from files import read_lines
from job import high_descriptors, remove_gate, start_at_gate
from supervisor import Supervisor
from wipe import Unclean, count_sockets, forget_times, lasting_mounts, wipe

_FORK_LIMIT_S = 5
# After this many passes, processes that fork faster than they are found are killed all at once,
# together with the zygote.
_MAX_PASSES = 20


class Zygote:
    def __init__(self, gate, preload):
        self.pid = None
        self._gate = gate
        self._preload = preload

    def release(self):
        remove_gate()

    def start(self, go, tell, out, err):
        """Makes the zygote fork a job's process. What the preload prints goes to the first job's
        streams.
        """
        if self.pid is None:
            self._control, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            control_fd = high_descriptors()[2]
            descriptors = {1: out, 2: err, control_fd: theirs.fileno()}
            self.pid = start_at_gate(self._gate, self._preload, control_fd, descriptors)
            theirs.close()
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (go, tell, out, err))
        # If the zygote is dead, the pipes end and show it.
        with contextlib.suppress(BrokenPipeError):
            self._control.sendmsg([b"f"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


class Reuser(Supervisor):
    def __init__(self, gate, preload):
        self.alone = count_tasks()
        self.zygote_died = False
        super().__init__(Zygote(gate, preload))

    def begin_job(self):
        self.passes = 0
        super().begin_job()

    def run(self):
        self.get_ready()
        self.mounts, self.sockets = lasting_mounts(), count_sockets()
        forget_times()
        while True:
            self.serve()
            self.rearm()

    def rearm(self):
        """Gets ready for one more job, or reports why it cannot and ends."""
        try:
            self.look_over()
            last = self.job
            self.begin_job()
            last.close()
            self.wait_for_fork()
        except (Unclean, OSError) as error:
            self.outbox.put_json(b"N", {"problem": str(error)})
            self.flush()
            raise SystemExit(0)
        self.outbox.put_json(b"N", {"problem": None})

    def look_over(self):
        if self.job.lasting_traces:
            raise Unclean(self.job.lasting_traces)
        if self.packages:
            raise Unclean("packages were installed for the last job")
        if self.mounts:
            raise Unclean("files would stay in %s" % ", ".join(self.mounts))
        if self.zygote_died or not self.is_over():
            raise Unclean("the processes are not those that there should be")
        wipe()
        if self.alone == 1 and count_tasks() != 1 + count_threads(self.interpreter.pid):
            raise Unclean("there is one process too many")
        if count_sockets() != self.sockets:
            raise Unclean("a socket is left")

    def wait_for_fork(self):
        """The zygote checks itself before it forks, and ends if it was tampered with."""
        limit = time.monotonic() + _FORK_LIMIT_S
        while self.job.state == "starting" and time.monotonic() < limit:
            self.turn(limit)
        if self.job.state != "ready":
            raise Unclean("the waiting interpreter was changed, stopped or killed")

    def is_over(self):
        return not self.others()

    def others(self):
        # A process of the job may get the pid of a zygote that has ended.
        known = {1} if self.zygote_died else {1, self.interpreter.pid}
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in known]

    def signal_all(self, number):
        self.passes += 1
        if self.passes > _MAX_PASSES:
            super().signal_all(number)
        for pid in self.others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def reaped(self, pid, status, usage):
        if pid == self.interpreter.pid:
            self.zygote_died = True
        else:
            super().reaped(pid, status, usage)


def count_tasks():
    """Number of tasks of this container from its cgroup; 0 if the cgroup does not count them."""
    for path in ("/sys/fs/cgroup/pids/pids.current", "/sys/fs/cgroup/pids.current"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(read_lines(path)[0])
    return 0


def count_threads(pid):
    return len(os.listdir("/proc/%d/task" % pid))
