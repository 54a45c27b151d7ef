"""Runs in the mother, as root of its container, from the container's start to its end.

One job as the mother sees it: its groups, its end, and bytes that pass through unread."""

import fcntl
import os
import select
import signal
import socket

from groups import Limits, count_oom_kills
from kernel import pid_from_credentials
from fork_request import REQUEST
from link import to_json
from switch import PIECE, WINDOW
from birth import BUNDLES

_SO_PASSCRED, _SCM_CREDENTIALS, _CREDENTIALS = 16, 2, 12
_MAX_STDERR = 4096


class Job:
    """Forked when it is made; placed in its groups when its PID 1 asks; gone when that has ended."""

    def __init__(self, mother, zygote, number, order):
        self.mother, self.zygote, self.number = mother, zygote, number
        self.pidfd = self._id = None
        self._locks = []
        self._files = b"".join(b"%s\0%s\0" % (name.encode(), path.encode()) for name, path in order["files"])
        self._complete = False
        self._pending = bytearray()
        self._written = 0
        self._credit = WINDOW
        self._reading = self._writes = False
        self._stderr_left = _MAX_STDERR
        self.groups = []
        self.stream, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stream.setblocking(False)
        self.stream.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)
        self.stderr, its_stderr = os.pipe()
        os.set_blocking(self.stderr, False)
        try:
            limits = Limits(order["memory"], order["pids"], order["cpus"])
            self.groups = mother.groups.make("job-%d" % number, limits)
            for name in filter(None, [order["packages"], *(name for name, _ in order["files"])]):
                self._locks.append(lock_shared(name))
            sizes = order["memory"], order["shm"], order["writable"]
            self._id = mother.code_ids.take()
            request = REQUEST.pack(*sizes, self._id, mother.most_signals, order["packages"].encode())
            zygote.request(request, [theirs.fileno(), its_stderr])
        except OSError:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(its_stderr)
        zygote.jobs.add(self)
        mother.handle(self.stream.fileno(), self._place)
        mother.handle(self.stderr, self._read_stderr)

    def _place(self):
        """The first byte comes with the pid of the job's PID 1, from the kernel. It waits for one in return."""
        try:
            word, extra, _, _ = self.stream.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS))
        except OSError:
            word = b""
        self.mother.forget(self.stream.fileno())
        try:
            if not word:
                raise OSError("its zygote could not fork it")
            pids = [pid_from_credentials(data) for _, kind, data in extra if kind == _SCM_CREDENTIALS]
            pid = pids[0] if pids else 0
            self.pidfd = os.pidfd_open(pid)
            self.mother.groups.place(self.groups, pid)
            self.stream.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 0)
            word = b"g" + len(self._files).to_bytes(4, "big") + self._files
            if self.stream.send(word) != len(word):
                raise OSError("the names of its files are too long")
        except OSError as error:
            self._end(str(error))
            return
        self.mother.handle(self.pidfd, self._died)
        self._follow_reads(True)
        self._write()

    def take(self, kind, payload):
        if kind == b"D":
            self._pending += payload
            if self.pidfd is not None:
                self._write()
        elif kind == b"C":
            self._credit += int.from_bytes(payload, "big")
            self._follow_reads(True)
        elif kind == b"K":
            self._kill()

    def _kill(self):
        self._complete = True
        if self.pidfd is None:
            self._end("killed")
            return
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _write(self):
        """Passes on as much as the job takes, and gives the agent credit for it."""
        try:
            while self._pending:
                sent = self.stream.send(self._pending)
                del self._pending[:sent]
                self._written += sent
        except BlockingIOError:
            pass
        except OSError:
            self._pending.clear()
        if self._written >= WINDOW // 2:
            self.mother.switch.put(self.number, b"C", self._written.to_bytes(4, "big"))
            self._written = 0
        writes = bool(self._pending)
        if writes != self._writes:
            self._writes = writes
            if writes:
                self.mother.handle(self.stream.fileno(), self._write, select.EPOLLOUT)
            else:
                self.mother.forget(self.stream.fileno())

    def read(self):
        """Reads one piece, as far as the agent's credit goes; False if there was none."""
        if self._credit == 0:
            self._follow_reads(False)
            return False
        try:
            data = self.stream.recv(min(PIECE, self._credit))
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._follow_reads(False)
            return False
        self._credit -= len(data)
        self.mother.switch.put_data(self.number, data)
        return True

    def _follow_reads(self, wanted):
        if self.pidfd is None or wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self.mother.readable.register(self.stream.fileno(), select.EPOLLIN)
            self.mother.readers[self.stream.fileno()] = self
        else:
            self.mother.readable.unregister(self.stream.fileno())
            del self.mother.readers[self.stream.fileno()]

    def _read_stderr(self):
        try:
            data = os.read(self.stderr, _MAX_STDERR)
        except BlockingIOError:
            return
        if not data:
            self.mother.forget(self.stderr)
            return
        if self._stderr_left > 0:
            self.mother.switch.put(self.number, b"E", data[: self._stderr_left])
        self._stderr_left -= len(data)

    def _died(self):
        """Its PID 1 has ended, and with it every process of the job; what it wrote is still to be read."""
        self.mother.forget(self.pidfd)
        self.mother.dying.add(self)
        self.finish()

    def finish(self):
        """Tells the agent that the job is gone, once all that it wrote is read or nobody wants it."""
        # Without a process of the job no byte can come, even if its zygote keeps the stream open.
        while not self._complete and self._credit > 0 and not self.mother.switch.full:
            self._complete = not self.read()
        if self._complete:
            self.mother.dying.discard(self)
            self._end(None)

    def _end(self, problem):
        self._read_stderr()
        report = {
            "problem": problem,
            "oom_kills": count_oom_kills(self.groups),
            "zygote_ended": self.zygote.has_ended(),
        }
        self._close()
        self.zygote.jobs.discard(self)
        self.zygote.end_if_done()
        del self.mother.jobs[self.number]
        self.mother.switch.put_last(self.number, b"G", to_json(report))

    def _close(self):
        self._follow_reads(False)
        for fd in (self.stream.fileno(), self.stderr):
            self.mother.forget(fd)
        self.stream.close()
        os.close(self.stderr)
        if self.pidfd is not None:
            self.mother.forget(self.pidfd)
            os.close(self.pidfd)
        while self._locks:
            os.close(self._locks.pop())
        self.mother.code_ids.give_back(self._id)
        self.mother.drop_groups(self.groups)


def lock_shared(name):
    """Locks a bundle of packages or a file, so that nobody removes it while a job may still read it; see bundles.py."""
    path = "%s/%s" % (BUNDLES, name)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(folder), os.stat(path)):
            raise OSError("packages or files of the job have just been removed")
    except OSError:
        os.close(folder)
        raise
    return folder
