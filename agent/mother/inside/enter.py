"""How a fork of a zygote becomes PID 1 of a job: namespaces, root, limits, filter.

Runs in the image's Python, as root of the zygote's user namespace, before a byte of the job is read.
"""

import os
import posix
import resource

import kernel
from files import read_lines
from jobs_request import REQUEST

STAGE = "/input"
_ROOT = STAGE + "/root"
_EMPTY = STAGE + "/empty"
_GROUPS = STAGE + "/groups"
_SETS = STAGE + "/sets"
_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
# What Docker masks, and what it makes read-only. Source: moby, oci/defaults.go.
_MASKED = (
    "/proc/acpi /proc/asound /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list "
    "/proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware /sys/devices/virtual/powercap"
).split()
_READ_ONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()


class Plan:
    """What is the same for all jobs of a zygote, found once."""

    def __init__(self):
        self.masked = []
        for path in filter(os.path.lexists, _MASKED):
            self.masked.append((_EMPTY if os.path.isdir(path) else "/dev/null", path))
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


def enter(plan, request, stream, stderr, code_filter):
    """Sets up namespaces, root and filter of the job's PID 1. Its stream becomes stdin and stdout."""
    kernel.close_descriptors_except({stream, stderr})
    os.write(stream, b"p")
    if os.read(stream, 1) != b"g":
        posix._exit(1)
    files = _read_files(stream)
    kernel.unshare(kernel.NEWCGROUP)
    kernel.bring_loopback_up()
    memory, shm, writable, packages = REQUEST.unpack(request)
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
        kernel.bind(_GROUPS, root + "/sys/fs/cgroup", kernel.RDONLY | kernel.SAFE)
        for controllers in plan.hierarchies:
            name = ",".join(controllers)
            target = "%s/sys/fs/cgroup/%s" % (root, name)
            kernel.mount("cgroup", target, "cgroup", kernel.RDONLY | kernel.SAFE, name)
    else:
        kernel.mount("cgroup", root + "/sys/fs/cgroup", "cgroup2", kernel.RDONLY | kernel.SAFE)
    for path in plan.read_only:
        kernel.bind(root + path, root + path, kernel.RDONLY | kernel.SAFE)
    for source, path in plan.masked:
        kernel.bind(source, root + path, kernel.RDONLY | kernel.NOSUID | kernel.NOEXEC)
    files = kernel.NOSUID | kernel.NODEV
    # The kernel has some 3,000 terminals for all containers together.
    devpts = "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64"
    kernel.mount("devpts", root + "/dev/pts", "devpts", kernel.NOSUID | kernel.NOEXEC, devpts)
    kernel.mount("tmpfs", root + "/dev/mqueue", "tmpfs", kernel.RDONLY | kernel.SAFE)
    kernel.mount("shm", root + "/dev/shm", "tmpfs", kernel.SAFE, "mode=1777,size=%d" % shm)
    for folder in ("/code", "/input"):
        size = "mode=755,size=%d" % memory
        kernel.mount("tmpfs", root + folder, "tmpfs", kernel.SAFE, size)
    for folder in ("/tmp", "/output"):
        kernel.mount("tmpfs", root + folder, "tmpfs", files, "mode=1777,size=%d" % writable)
    if packages:
        kernel.bind("%s/%s/files" % (_SETS, packages), root + "/packages", kernel.RDONLY | files)


def _read_files(stream):
    """The job's input files, which the mother sends to the fork alone: names of sets and paths below /input."""
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
        kernel.bind("%s/%s/files/content" % (_SETS, name), target, kernel.RDONLY | kernel.SAFE)
