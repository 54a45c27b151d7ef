"""Runs in a zygote and in PID 1 of a forked sandbox, as root of its user namespace, from the preload list to its end.

How a zygote forks jobs, and how a fork becomes PID 1 of a job (namespaces, root, limits, filter) and runs the
supervisor, whose own child returns to the gate. It is loaded after the preload list, and removed in that child.

It runs on the Python of the job's image, before a byte of the job is read.
"""

import _signal
import _socket
import gc
import os
import posix
import resource
import sys
import time

import kernel
import supervisor
from ids import END_OF_CODE, FIRST_OF_CODE, REQUEST
from job import prefer_for_oom
from kernel import CODE_UID, read_lines, write_file
from link import to_json

STAGE = "/input"
_ROOT = STAGE + "/root"
_EMPTY = STAGE + "/empty"
_GROUPS = STAGE + "/groups"
_BUNDLES = STAGE + "/bundles"
# Java looks for its limits only where cpuset is mounted too. Source: OpenJDK 21, cgroupSubsystem_linux.cpp.
_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "cpuset")
# As `maskedPaths` in backends/profiles.ts, and what Docker makes read-only. Source: moby, oci/defaults.go.
# Each read of /proc/locks delays all locks and new files of the host. It is masked too, and PID 1 opens it before.
_MASKED = (
    "/proc/acpi /proc/asound /proc/fs /proc/interrupts /proc/kallsyms /proc/kcore /proc/keys /proc/latency_stats "
    "/proc/locks /proc/pressure /proc/scsi /proc/sched_debug /proc/timer_list /proc/timer_stats "
    "/sys/devices/virtual/powercap /sys/firmware"
).split()
_READ_ONLY = "/proc/bus /proc/irq /proc/sys /proc/sysrq-trigger".split()
_PAGE = 4096
# A high number, because the low ones become the job's streams.
_LOCKS_FD = 1020
# As `tcpBuffers` in backends/profiles.ts.
_TCP_BUFFERS = b"4096 16384 65536"


class Forked(BaseException):
    pass


class Forker:
    """Starts the interpreter of a job, for the supervisor."""

    def __init__(self, load, codes, blocked, go_fd, tell_fd):
        self.load, self.codes = load, codes
        self._blocked, self._go_fd, self._tell_fd = blocked, go_fd, tell_fd

    def start(self, go, tell, out, err, groups=()):
        if posix.fork():
            return
        self._become_interpreter(groups, go, tell, out, err)
        raise Forked

    def release(self):
        pass

    def _become_interpreter(self, groups, go, tell, out, err):
        posix.setsid()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._blocked)
        prefer_for_oom()
        null = posix.open("/dev/null", posix.O_RDONLY)
        for fd, target in ((go, self._go_fd), (tell, self._tell_fd), (out, 1), (err, 2), (null, 0)):
            posix.dup2(fd, target)
        kernel.close_descriptors_except({0, 1, 2, self._go_fd, self._tell_fd})
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        _signal.set_wakeup_fd(-1)
        kernel.become_unprivileged(groups)
        kernel.open_memory()
        posix.chdir("/output")


def serve_mother(load, codes, took_ms, go_fd, tell_fd, control_fd, code_filter, most_inherited):
    """Returns only in the interpreters of jobs. The filter is that of the code; a job may inherit so many bytes."""
    problem = find_problem(control_fd, most_inherited)
    blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    # The kernel then reaps every child.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    # The first fork is a trial: libraries with fork handlers end their threads at it, and an interpreter that
    # cannot fork fails here, before it is reported as ready.
    if posix.fork() == 0:
        posix._exit(0)
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, control_fd)
    plan = Plan()
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(null, fd)
    posix.close(null)
    control.send(to_json({"problem": problem, "took_ms": took_ms}))
    gc.collect()
    kernel.use_large_pages()
    while True:
        request, rights, _, _ = control.recvmsg(REQUEST.size, _socket.CMSG_SPACE(8))
        if not request:
            posix._exit(0)
        data = rights[0][2]
        stream, stderr = (int.from_bytes(data[i : i + 4], sys.byteorder) for i in (0, 4))
        try:
            pid = kernel.fork_into(kernel.JOB_NAMESPACES)
            if pid == 0:
                break
            give_ids(pid, request)
        except OSError:
            pass  # the mother reads the end of the job's stream, or the agent gives it up
        posix.close(stream)
        posix.close(stderr)
    try:
        # A preload may have blocked signals. PID 1 needs them, above all the one for the end of a child.
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        enter(plan, request, stream, stderr, code_filter)
        kernel.drop_rights()
        supervisor.Supervisor(Forker(load, codes, blocked, go_fd, tell_fd)).run()
        posix._exit(0)
    except Forked:
        pass
    except BaseException as error:
        words = ("%s: %s" % (type(error).__name__, error)).encode()
        try:
            posix.write(stderr, words)
        except OSError:
            posix.write(2, words)
        posix._exit(1)


def find_problem(control_fd, most_inherited):
    """Why a fork would not be like an interpreter that has just imported the preload list; or ""."""
    with open("/proc/self/maps") as maps:
        if any(line.split()[1] in ("rw-s", "-w-s", "rwxs") for line in maps):
            return "a preloaded module shares memory"
    opened = {int(fd) for fd in posix.listdir("/proc/self/fd")}
    # One more lists the folder.
    if len(opened - {0, 1, 2, control_fd}) > 1:
        return "a preloaded module keeps files open"
    threading = sys.modules.get("threading")
    if threading and threading.active_count() > 1:
        return "a preloaded module has started a thread"
    with open("/proc/self/statm") as sizes:
        inherited = int(sizes.read().split()[1]) * resource.getpagesize()
    if inherited > most_inherited:
        return "what is preloaded takes %d MiB, more than half of memory_limit" % (inherited >> 20)
    return ""


class Plan:
    """What is the same for all jobs of a zygote, found once."""

    def __init__(self):
        # What is bound from a mount has its flags, which saves a call for each. Those of /dev/null are from birth.py.
        kernel.bind(_EMPTY, _EMPTY, kernel.RDONLY | kernel.SAFE)
        masked = filter(os.path.lexists, _MASKED)
        self.masked = [(_EMPTY if os.path.isdir(path) else "/dev/null", path) for path in masked]
        self.read_only = [path for path in _READ_ONLY if os.path.lexists(path)]
        lines = [line.split(":", 2) for line in read_lines("/proc/self/cgroup")]
        lists = [controllers.split(",") for _, controllers, _ in lines]
        self.hierarchies = [each for each in lists if not set(each).isdisjoint(_CONTROLLERS)]
        os.mkdir(_GROUPS)
        for controllers in self.hierarchies:
            folder = ",".join(controllers)
            os.mkdir("%s/%s" % (_GROUPS, folder))
            for name in controllers:
                if name != folder:
                    os.symlink(folder, "%s/%s" % (_GROUPS, name))
        kernel.bind(_GROUPS, _GROUPS, kernel.RDONLY | kernel.SAFE)


def give_ids(pid, request):
    """Maps the ids of a job's user namespace to the zygote's: the same ones, but for the user of the code."""
    count = int(read_lines("/proc/self/uid_map")[0].split()[2])
    code = REQUEST.unpack(request)[3]
    next_id = CODE_UID + 1
    users = [(0, 0, CODE_UID), (CODE_UID, code, 1), (next_id, next_id, FIRST_OF_CODE - next_id)]
    if count > END_OF_CODE:
        users.append((END_OF_CODE, END_OF_CODE, count - END_OF_CODE))
    write_file("/proc/%d/uid_map" % pid, b"".join(b"%d %d %d\n" % line for line in users), 0)
    write_file("/proc/%d/gid_map" % pid, b"0 0 %d" % count, 0)


def enter(plan, request, stream, stderr, code_filter):
    """Sets up namespaces, root and filter of the job's PID 1. Its stream becomes stdin and stdout."""
    kernel.close_descriptors_except({stream, stderr})
    os.write(stream, b"p")
    if os.read(stream, 1) != b"g":
        posix._exit(1)
    files = _read_files(stream)
    while os.getuid() != 0:
        time.sleep(0.0005)  # until the zygote has given it ids
    kernel.unshare(kernel.NEWCGROUP)
    kernel.bring_loopback_up()
    memory, shm, writable, _, signals, packages = REQUEST.unpack(request)
    for name, limit in (
        ("user/max_user_namespaces", b"0"),
        ("net/ipv4/tcp_rmem", _TCP_BUFFERS),
        ("net/ipv4/tcp_wmem", _TCP_BUFFERS),
    ):
        write_file("/proc/sys/" + name, limit, 0)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (signals, signals))
    _make_root(plan, memory, shm, writable, packages.rstrip(b"\0").decode())
    _bind_files(files)
    kernel.pivot_into(_ROOT)
    for fd, target in ((stream, 0), (stream, 1), (stderr, 2)):
        os.dup2(fd, target)
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))
    if code_filter:
        kernel.add_filter(code_filter)


def _make_root(plan, memory, shm, writable, packages):
    root = _ROOT
    kernel.bind(root, root, kernel.REC)
    kernel.mount("proc", root + "/proc", "proc", kernel.SAFE)
    kernel.mount("sysfs", root + "/sys", "sysfs", kernel.RDONLY | kernel.SAFE)
    if plan.hierarchies:
        kernel.bind(_GROUPS, root + "/sys/fs/cgroup")
        for controllers in plan.hierarchies:
            name = ",".join(controllers)
            target = "%s/sys/fs/cgroup/%s" % (root, name)
            kernel.mount("cgroup", target, "cgroup", kernel.RDONLY | kernel.SAFE, name)
    else:
        kernel.mount("cgroup", root + "/sys/fs/cgroup", "cgroup2", kernel.RDONLY | kernel.SAFE)
    locks = os.open(root + "/proc/locks", os.O_RDONLY)
    supervisor.locks_fd = os.dup2(locks, _LOCKS_FD, inheritable=False)
    os.close(locks)
    for path in plan.read_only:
        kernel.bind(root + path, root + path, kernel.RDONLY | kernel.SAFE)
    for source, path in plan.masked:
        kernel.bind(source, root + path)
    files = kernel.NOSUID | kernel.NODEV
    # The kernel has some 3,000 terminals for all containers together.
    devpts = "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64"
    kernel.mount("devpts", root + "/dev/pts", "devpts", kernel.NOSUID | kernel.NOEXEC, devpts)
    kernel.mount("tmpfs", root + "/dev/mqueue", "tmpfs", kernel.RDONLY | kernel.SAFE)
    # At most one file for each page: files without content take memory of the kernel, part of which counts for nobody.
    open_to_all = "mode=1777,size=%d,nr_inodes=%d"
    kernel.mount("shm", root + "/dev/shm", "tmpfs", kernel.SAFE, open_to_all % (shm, shm // _PAGE))
    for folder in ("/code", "/input"):
        size = "mode=755,size=%d" % memory
        kernel.mount("tmpfs", root + folder, "tmpfs", kernel.SAFE, size)
    for folder in ("/tmp", "/output"):
        kernel.mount("tmpfs", root + folder, "tmpfs", files, open_to_all % (writable, writable // _PAGE))
    if packages:
        kernel.bind("%s/%s/files" % (_BUNDLES, packages), root + "/packages", kernel.RDONLY | files)


def _read_files(stream):
    """The job's input files, which the mother sends to the fork alone: names of bundles and paths below /input."""
    words = _read(stream, int.from_bytes(_read(stream, 4), "big")).decode().split("\0")
    return list(zip(words[0:-1:2], words[1::2]))


def _read(stream, size):
    data = b""
    while len(data) < size:
        piece = os.read(stream, size - len(data))
        if not piece:
            posix._exit(1)
        data += piece
    return data


def _bind_files(files):
    for name, path in files:
        target = "%s/input/%s" % (_ROOT, path)
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444))
        kernel.bind("%s/%s/files/content" % (_BUNDLES, name), target, kernel.RDONLY | kernel.SAFE)
