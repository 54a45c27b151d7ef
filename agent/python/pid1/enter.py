"""Runs in PID 1 of a forked sandbox, as root of its user namespace, from its fork to its first frame.

How a fork of a zygote becomes PID 1 of a job: namespaces, root, limits, filter.

It runs on the Python of the job's image, before a byte of the job is read.
"""

import os
import posix
import resource
import time

import kernel
import usage
from files import read_lines, write_file
from ids import END_OF_CODE, FIRST_OF_CODE
from fork_request import REQUEST
from kernel import CODE_UID

STAGE = "/input"
_ROOT = STAGE + "/root"
_EMPTY = STAGE + "/empty"
_GROUPS = STAGE + "/groups"
_BUNDLES = STAGE + "/bundles"
# Java looks for its limits only where cpuset is mounted too. Source: OpenJDK 21, cgroupSubsystem_linux.cpp.
_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "cpuset")
# As `maskedPaths` in container/container-profile.ts, and what Docker makes read-only. Source: moby, oci/defaults.go.
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
# As `tcpBuffers` in container/container-profile.ts.
_TCP_BUFFERS = b"4096 16384 65536"


class Plan:
    """What is the same for all jobs of a zygote, found once."""

    def __init__(self):
        self.masked = []
        for path in filter(os.path.lexists, _MASKED):
            # A mount's flags cannot be less than those of its source, which is the zygote's.
            if os.path.isdir(path):
                self.masked.append((_EMPTY, path, kernel.RDONLY | kernel.SAFE))
            else:
                self.masked.append(("/dev/null", path, kernel.RDONLY | kernel.NOSUID | kernel.NOEXEC))
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
        kernel.bind(_GROUPS, root + "/sys/fs/cgroup", kernel.RDONLY | kernel.SAFE)
        for controllers in plan.hierarchies:
            name = ",".join(controllers)
            target = "%s/sys/fs/cgroup/%s" % (root, name)
            kernel.mount("cgroup", target, "cgroup", kernel.RDONLY | kernel.SAFE, name)
    else:
        kernel.mount("cgroup", root + "/sys/fs/cgroup", "cgroup2", kernel.RDONLY | kernel.SAFE)
    locks = os.open(root + "/proc/locks", os.O_RDONLY)
    usage.locks_fd = os.dup2(locks, _LOCKS_FD, inheritable=False)
    os.close(locks)
    for path in plan.read_only:
        kernel.bind(root + path, root + path, kernel.RDONLY | kernel.SAFE)
    for source, path, flags in plan.masked:
        kernel.bind(source, root + path, flags)
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
