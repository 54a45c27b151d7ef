"""Runs in the mother, as root of its container, from the container's start to its end.

Zygotes and their jobs, as the mother sees them. birth.py starts a zygote."""

import fcntl
import os
import resource
import signal
import socket

import birth
import kernel
from birth import PID_BYTES, READY_FOR_IDS, ROOTFS
from files import write_file
from groups import Limits
from link import to_json

_MAX_OUTPUT = 4096
_MAX_WORD = 4096


def begin(settings):
    """Closes what PID 1 needs no more, before anything else starts."""
    kernel.make_mounts_private()
    kernel.bind("/proc/sys", "/proc/sys", kernel.RDONLY | kernel.SAFE)
    birth.make_folders()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kernel.set_no_new_privileges()


class Zygote:
    """A zygote and the jobs that were forked from it. It tells the agent when it is ready, and when it has ended."""

    def __init__(self, mother, number, order):
        self.mother, self.number = mother, number
        self.jobs = set()
        self._retired = self._is_ready = False
        self._output = b""
        self._pidfd = None
        self._problem = "the zygote ended"
        self._locks = []
        self._birth = []
        self.groups = []
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.output, its_output = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self._locks.append(lock_root(order["root"]))
            limits = Limits(order["memory"], order["pids"], order["cpus"])
            self.groups = mother.groups.make("zygote-%d" % number, limits)
            self._begin(order, theirs.fileno(), its_output)
        except OSError:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(its_output)
        mother.handle(self.control.fileno(), self._hear)
        mother.handle(self.output, self._read_output)

    def _begin(self, order, control, output):
        """Starts the process in its groups; it says on `control` when it is ready. Waits for nothing, so that other jobs
        go on: the kernel may need long for the namespaces."""
        told, tell = os.pipe()
        hold, let_go = os.pipe()
        os.set_blocking(told, False)
        self._birth = [told, let_go]
        try:
            pid = os.fork()
            if pid == 0:
                os.close(told)
                os.close(let_go)
                birth.become_zygote(self.mother.settings, order, control, output, tell, hold)
        finally:
            os.close(tell)
            os.close(hold)
        self.mother.groups.place(self.groups, pid)
        self.mother.handle(told, lambda: self._follow_birth(pid))

    def _follow_birth(self, pid):
        """Reads what birth.py tells: that it needs its ids, and then the pid of the zygote, its child."""
        told, let_go = self._birth
        try:
            word = os.read(told, PID_BYTES)
            if word == READY_FOR_IDS:
                base, count = self.mother.settings["ids"]
                for name in ("uid_map", "gid_map"):
                    write_file("/proc/%d/%s" % (pid, name), b"0 %d %d" % (base, count), 0)
                os.write(let_go, READY_FOR_IDS)
                return
            if word:
                # Its parent waits, so no other process can have this pid.
                self._pidfd = os.pidfd_open(int.from_bytes(word, "big"))
        except OSError as error:
            self._problem = str(error)
        self._end_birth()
        if self._pidfd is None:
            self._end()  # nothing could end it later but the end of its groups
        else:
            self.end_if_done()

    def _end_birth(self):
        if self._birth:
            self.mother.forget(self._birth[0])
        while self._birth:
            os.close(self._birth.pop())

    def request(self, request, descriptors):
        socket.send_fds(self.control, [request], descriptors, socket.MSG_DONTWAIT)

    def retire(self):
        self._retired = True
        self.end_if_done()

    def end_if_done(self):
        """Kills a retired zygote after its last job. Its image's modules could ignore a request to end."""
        if self._retired and not self.jobs:
            self._kill()

    def _kill(self):
        """Ends it with all that it has started: it is PID 1 of its namespace."""
        if self._pidfd is not None:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def has_ended(self):
        """Whether its process has ended: the kernel closes the socket before it ends the jobs of that process."""
        try:
            return self.control.fileno() < 0 or not self.control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _hear(self):
        try:
            word = self.control.recv(_MAX_WORD)
        except OSError:
            word = b""
        # A zygote sends one message. Further ones would delay the frames of all jobs.
        if word and not self._is_ready:
            self._is_ready = True
            # To read its output while it serves jobs would only cost time. What the pipe holds is read at its end.
            self.mother.forget(self.output)
            self.mother.switch.put(self.number, b"Y", word)
            return
        self._end()

    def _end(self):
        self._read_output()
        report = {"problem": self._problem, "output": self._output.decode("utf-8", "replace")}
        self._close()
        self.mother.zygotes.pop(self.number, None)
        self.mother.switch.put(self.number, b"N", to_json(report))

    def _read_output(self):
        try:
            data = os.read(self.output, 64 * 1024)
        except BlockingIOError:
            return
        self._output = (self._output + data)[-_MAX_OUTPUT:]
        if not data:
            self.mother.forget(self.output)

    def _close(self):
        self._end_birth()
        self._kill()
        for fd in (self.control.fileno(), self.output):
            self.mother.forget(fd)
        self.control.close()
        os.close(self.output)
        while self._locks:
            os.close(self._locks.pop())
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self.mother.drop_groups(self.groups)


def lock_root(name):
    """Locks an image's files, so that no agent removes them while something runs on them; see unpack.py."""
    folder = os.open("%s/%s" % (ROOTFS, name), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # a job has locked its root, which keeps it too
    return folder
