"""Runs in the mother, as root of its container, from the container's start to its end.

PID 1 of the mother: starts zygotes, and has jobs forked from them.

It owns the control groups, passes the jobs' bytes on, and never runs or reads a byte of a job or of a job's image. Its
end is the end of every zygote and job.

The engine's stream carries the frames of many jobs. A frame: number of a job or zygote (4 bytes), type (1 byte), length
(4 bytes, big-endian), payload.

to the mother    Z start a zygote (JSON)  X let a zygote end when its last job has
                 P are you alive? (asked while a zygote starts)
                 O open a job (JSON)  D data  C credit  K kill
to the agent     H hello (JSON), the first frame
                 Y a zygote is ready (JSON)  N it failed or ended (JSON)  P the mother is alive
                 D data  C credit  E stderr of the job's PID 1  G the job is gone (JSON)

Data of a job may be sent as far as its credit goes, in bytes: WINDOW at the beginning, more with each
C (4 bytes). So one job that is not read, or does not read, holds nobody else up, and what is kept
for it is bounded.
"""

import collections
import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import socket

from birth import BUNDLES, Zygote, begin
from ids import REQUEST, CodeIds
from kernel import SAFE, count_oom_kills, mount, pid_from_credentials, read_lines, write_file
from link import to_json

_RETRY_MS = 20
_UNLIMITED = 1 << 20

HEAD = 9
WINDOW = 256 * 1024
PIECE = 64 * 1024 - HEAD  # engines pass output on in parts of 32 KiB
MAX_PAYLOAD = 1024 * 1024
_ENOUGH = 512 * 1024
_F_SETPIPE_SZ = 1031

_SO_PASSCRED, _SCM_CREDENTIALS, _CREDENTIALS = 16, 2, 12
_MAX_STDERR = 4096

GROUPS = "/run/groups"
_CPU_PERIOD_US = 100_000
_TCP_BYTES = 16 << 20
_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")


class Mother:
    def __init__(self, settings):
        self.settings = settings
        self.switch = Switch(0, 1)
        self.groups = open_groups()
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
            self._leftover_groups = [left for left in self._leftover_groups if not remove_groups(left)]

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
        if not remove_groups(groups):
            self._leftover_groups.append(groups)


class Switch:
    """Frames in and out; writing never blocks, and control frames overtake data."""

    def __init__(self, fd_in, fd_out):
        self.fd_in, self.fd_out = fd_in, fd_out
        self._incoming = bytearray()
        self._control = bytearray()
        self._data = collections.deque()
        self._data_bytes = 0
        self._writing = memoryview(b"")
        os.set_blocking(fd_out, False)
        # A full pipe takes a page at a time, and each page would wake the engine and the agent.
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd_out, _F_SETPIPE_SZ, 2 * WINDOW)

    def read(self):
        """Reads once and yields the frames that are complete: (number, type, payload)."""
        chunk = os.read(self.fd_in, MAX_PAYLOAD)
        if not chunk:
            raise SystemExit(0)  # the agent is dead, or has no more use for this container
        self._incoming += chunk
        at = 0
        while len(self._incoming) - at >= HEAD:
            start = at + HEAD
            end = start + int.from_bytes(self._incoming[start - 4 : start], "big")
            if end - start > MAX_PAYLOAD:
                raise ValueError("frame too long")
            if len(self._incoming) < end:
                break
            number = int.from_bytes(self._incoming[at : at + 4], "big")
            yield number, bytes(self._incoming[at + 4 : at + 5]), bytes(self._incoming[start:end])
            at = end
        del self._incoming[:at]

    def put(self, number, kind, payload=b""):
        self._control += _head(number, kind, payload) + payload

    def put_last(self, number, kind, payload):
        """Puts data, or a frame that must not overtake it."""
        self._data.append(_head(number, kind, payload) + payload)
        self._data_bytes += HEAD + len(payload)

    @property
    def full(self):
        """Whether no more data should be put now."""
        return self._data_bytes >= _ENOUGH

    @property
    def empty(self):
        return not (self._writing or self._control or self._data)

    def write(self):
        """Writes as much as the stream takes."""
        while not self.empty:
            if not self._writing:
                self._writing = memoryview(self._next())
            try:
                sent = os.write(self.fd_out, self._writing)
            except BlockingIOError:
                return
            self._writing = self._writing[sent:]

    def _next(self):
        """All control frames, and data up to a piece: many small frames share a write."""
        taken, self._control = self._control, bytearray()
        while self._data and len(taken) < PIECE:
            frame = self._data.popleft()
            self._data_bytes -= len(frame)
            taken += frame
        return bytes(taken)


def _head(number, kind, payload):
    return number.to_bytes(4, "big") + kind + len(payload).to_bytes(4, "big")


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
            self.groups = mother.groups.make("job-%d" % number, order)
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
        self.mother.switch.put_last(self.number, b"D", data)
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
    """Locks a bundle of packages or a file, so that nobody removes it while a job may still read it; see unpack.py."""
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


class GroupsV2:
    """Control groups of zygotes and jobs, inside the groups that the engine made for this container. An order has their
    limits: memory in bytes, swap included; processes and threads; cpus in fractions, 0 for no limit.

    Sources: cgroups(7); the kernel's admin-guide/cgroup-v1/memory.rst and admin-guide/cgroup-v2.rst.
    """

    def __init__(self):
        os.mkdir(GROUPS)
        mount("cgroup2", GROUPS, "cgroup2", SAFE)
        # A group with controllers for its children holds no process.
        os.mkdir(GROUPS + "/mother")
        write_file(GROUPS + "/mother/cgroup.procs", b"1")
        write_file(GROUPS + "/cgroup.subtree_control", b"+memory +pids +cpu")

    def make(self, name, order):
        group = "%s/%s" % (GROUPS, name)
        with _complete([group]):
            _write(group, "memory.max", int(order["memory"]))
            _write_if_there(group, "memory.swap.max", 0)
            _write(group, "pids.max", int(order["pids"]))
            if order["cpus"]:
                _write(group, "cpu.max", "%d %d" % (order["cpus"] * _CPU_PERIOD_US, _CPU_PERIOD_US))
        return [group]

    def place(self, groups, pid):
        _write(groups[0], "cgroup.procs", pid)


class GroupsV1:
    def __init__(self):
        os.mkdir(GROUPS)
        mount("tmpfs", GROUPS, "tmpfs", SAFE, "mode=755")
        self._folders = {}
        for controllers in hierarchies():
            folder = "%s/%s" % (GROUPS, "-".join(controllers))
            os.mkdir(folder)
            mount("cgroup", folder, "cgroup", SAFE, ",".join(controllers))
            for controller in controllers:
                self._folders[controller] = folder
        missing = set(_CONTROLLERS) - set(self._folders)
        if missing:
            raise OSError("the kernel has no control groups for %s" % ", ".join(sorted(missing)))

    def make(self, name, order):
        memory, pids, cpu, cpuacct = ("%s/%s" % (self._folders[each], name) for each in _CONTROLLERS)
        # Several controllers may share a hierarchy, and the same group.
        groups = list(dict.fromkeys((memory, pids, cpu, cpuacct)))
        with _complete(groups):
            _write(memory, "memory.limit_in_bytes", int(order["memory"]))
            _write_if_there(memory, "memory.memsw.limit_in_bytes", int(order["memory"]))
            # The kernel counts buffers of sockets apart from other memory, and only if they have a limit.
            _write_if_there(memory, "memory.kmem.tcp.limit_in_bytes", _TCP_BYTES)
            _write(pids, "pids.max", int(order["pids"]))
            if order["cpus"]:
                _write(cpu, "cpu.cfs_quota_us", int(order["cpus"] * _CPU_PERIOD_US))
        return groups

    def place(self, groups, pid):
        for group in groups:
            _write(group, "cgroup.procs", pid)


@contextlib.contextmanager
def _complete(groups):
    """Makes the folders of groups; if one of them cannot be made or limited, none is left."""
    made = []
    try:
        for group in groups:
            os.mkdir(group)
            made.append(group)
        yield
    except OSError:
        remove_groups(made)
        raise


def open_groups():
    unified = any(line.startswith("0::") for line in read_lines("/proc/self/cgroup"))
    return GroupsV2() if unified and not hierarchies() else GroupsV1()


def hierarchies():
    """The v1 hierarchies of the controllers that jobs need: a list of lists of controllers."""
    found = []
    for line in read_lines("/proc/self/cgroup"):
        controllers = line.split(":", 2)[1].split(",")
        if not set(controllers).isdisjoint(_CONTROLLERS):
            found.append(controllers)
    return found


def _kill(groups):
    """Kills what is in the groups: processes that a hostile zygote has left there."""
    for group in groups:
        _write_if_there(group, "pids.max", 0)
    for pid in read_lines(groups[0] + "/cgroup.procs"):
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove_groups(groups):
    """Ends what is left in groups and removes them; False if the kernel still counts a process in one."""
    while groups:
        try:
            os.rmdir(groups[-1])
        except FileNotFoundError:
            pass
        except OSError:
            _kill(groups)
            return False
        groups.pop()
    return True


def _write(group, name, value):
    write_file("%s/%s" % (group, name), str(value).encode())


def _write_if_there(group, name, value):
    if os.path.exists("%s/%s" % (group, name)):
        _write(group, name, value)


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
