"""Runs in the mother, a zygote and PID 1, as root, from the start of each to its end.

System calls that Python's os module lacks, and rights of processes; small files, whole.

Sources: mount(2), unshare(2), clone(2), madvise(2), pivot_root(2), prctl(2), capset(2), capabilities(7), seccomp(2),
keyctl(2), netdevice(7).
"""

import ctypes
import errno
import os
import resource
import struct
import sys

CODE_UID = 1000

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

ZYGOTE_NAMESPACES = NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS
JOB_NAMESPACES = NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC

RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
SAFE = NOSUID | NODEV | NOEXEC

_MACHINE = os.uname().machine
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(_MACHINE, -1)
_KEYCTL = {"x86_64": 250, "aarch64": 219}.get(_MACHINE, -1)
_SECCOMP = {"x86_64": 317, "aarch64": 277}.get(_MACHINE, -1)
_CLONE = {"x86_64": 56, "aarch64": 220}.get(_MACHINE, -1)
_SIGCHLD = 17
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SECCOMP_SET_MODE_FILTER = 1
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_LINUX_CAPABILITY_VERSION_3 = 0x20080522
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_MNT_DETACH = 2
_IPC_RMID = 0
_MADV_COLLAPSE = 25
_LARGE_PAGE = 2 << 20
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 1, 0x40
_AF_UNIX, _SOCK_DGRAM = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)
# Its calls keep the interpreter's lock.
_python = ctypes.PyDLL(None, use_errno=True)
_PIECE = 64 * 1024


def read_lines(path):
    """The built-in `open` takes three times as long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, _PIECE), b"")).decode().splitlines()
    finally:
        os.close(fd)


def count_oom_kills(groups=("/sys/fs/cgroup", "/sys/fs/cgroup/memory")):
    """Number of processes of the groups, by default this container's, that the OOM killer killed: cgroup v2 or v1."""
    for group in groups:
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = read_lines("%s/%s" % (group, name))
                return int(dict(line.split() for line in lines)["oom_kill"])
            except (OSError, KeyError, ValueError):
                pass
    return 0


def write_file(path, data, how=os.O_TRUNC):
    """Writes a whole file, or appends to it if `how` is os.O_APPEND."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def begin_file(path, last):
    """Makes a file that nobody can write later, and returns the descriptor for its data. Closes `last`."""
    if last is not None:
        os.close(last)
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)


def unshare(flags):
    _check(_libc.unshare(flags), "unshare")


def fork_into(namespaces):
    """Like os.fork, but the child is in new namespaces. In a new PID namespace, it is PID 1.

    The C library's own work at a fork is left out. So the process must have only one thread. A call of
    os.fork before this one makes libraries end their threads.
    """
    _python.PyOS_BeforeFork()
    pid = _python.syscall(_CLONE, ctypes.c_ulong(namespaces | _SIGCHLD), None, None, None, None)
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, "clone: %s" % os.strerror(code))
    return pid


def use_large_pages():
    """Moves memory of the calling process into large pages, where the kernel can (6.1 and newer).

    With pandas preloaded, a fork then costs a third less. The likely reason: it copies smaller page tables.
    """
    for line in read_lines("/proc/self/maps"):
        words = line.split()
        if words[1] == "rw-p" and words[5:] in ([], ["[heap]"]):
            start, end = (int(word, 16) for word in words[0].split("-"))
            start = -(-start // _LARGE_PAGE) * _LARGE_PAGE
            size = (end - start) // _LARGE_PAGE * _LARGE_PAGE
            if size > 0:
                _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_COLLAPSE)


def mount(source, target, kind=None, flags=0, data=None):
    words = (None if word is None else word.encode() for word in (source, target, kind, data))
    source, target, kind, data = words
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), data), "mount %r" % target)


def bind(source, target, flags=0):
    """Binds a tree at another place; with `flags` only these hold there."""
    mount(source, target, None, BIND | (flags & REC))
    if flags & ~REC:
        remount(target, flags & ~REC)


def remount(target, flags):
    """Sets what holds for what is mounted there, in this place only."""
    mount(None, target, None, BIND | REMOUNT | flags)


def unmount(target):
    _check(_libc.umount2(target.encode(), _MNT_DETACH), "umount %r" % target)


def make_mounts_private():
    mount(None, "/", None, REC | PRIVATE)


def pivot_into(root):
    """Makes a mounted folder the root of the calling process, and forgets the old one."""
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT, b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def join_new_keyring():
    _check(min(0, _libc.syscall(_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, None)), "keyctl")


def set_no_new_privileges():
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def add_filter(program):
    """Adds a filter of system calls: struct sock_filter, 8 bytes per instruction."""
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _check(_libc.syscall(_SECCOMP, _SECCOMP_SET_MODE_FILTER, 0, header), "seccomp")


def bring_loopback_up():
    fd = _libc.socket(_AF_UNIX, _SOCK_DGRAM, 0)
    request = struct.pack("16sH22x", b"lo", _IFF_UP | _IFF_RUNNING)
    _check(_libc.ioctl(fd, _SIOCSIFFLAGS, request), "loopback")
    os.close(fd)


def close_descriptors_except(kept):
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = 0
    for fd in [*sorted(kept), most]:
        if low < fd:  # else CPython closes them all
            os.closerange(low, fd)
        low = fd + 1


def pid_from_credentials(data):
    """The pid in a message's credentials, which the kernel wrote. Source: unix(7), SCM_CREDENTIALS."""
    return int.from_bytes(data[:4], sys.byteorder)


def harden_supervisor():
    """Leaves PID 1 the rights that drop_rights leaves, and only the standard descriptors: others can only be the
    engine's, left open by mistake.
    """
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            try:
                os.close(fd)
            except OSError:
                pass
    drop_rights()


def drop_rights():
    """Leaves PID 1 the capabilities to change its user and to signal other users; its children get
    none.
    """
    close_memory()
    set_no_new_privileges()
    keep_capabilities((), (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))


def keep_capabilities(bounding, kept):
    """Leaves the calling process the `kept` capabilities, and what it executes the `bounding` ones."""
    for capability in range(64):
        if capability not in bounding:
            result = _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
            if result and ctypes.get_errno() == errno.EINVAL:
                break  # the kernel has no more
            _check(result, "prctl")
    _set_capabilities(sum(1 << capability for capability in kept))


def open_memory():
    """Gives the calling process its /proc/self back, which a change of user without exec closes."""
    _prctl(_PR_SET_DUMPABLE, 1)


def close_memory():
    """Closes the calling process's memory to other processes; a change of user undoes this."""
    _prctl(_PR_SET_DUMPABLE, 0)


def make_pipes_for_code(count):
    """Makes pipes that belong to uid 1000, so that the code can open its streams by name, such as /dev/stderr."""
    os.seteuid(CODE_UID)
    try:
        return [os.pipe() for _ in range(count)]
    finally:
        os.seteuid(0)
        close_memory()


def become_unprivileged(groups=()):
    """Turns the calling process irreversibly into uid 1000 without capabilities, and with these groups besides 1000."""
    os.setgroups(groups)
    os.setresgid(CODE_UID, CODE_UID, CODE_UID)
    os.setresuid(CODE_UID, CODE_UID, CODE_UID)
    _set_capabilities(0)


def remove_ipc_of_code():
    """Removes shared memory, queues and semaphores of System V: they outlive the processes that made them.

    Sources: shmctl(2), msgctl(2), semctl(2).
    """
    removers = {
        "shm": lambda number: _libc.shmctl(number, _IPC_RMID, None),
        "msg": lambda number: _libc.msgctl(number, _IPC_RMID, None),
        "sem": lambda number: _libc.semctl(number, 0, _IPC_RMID),
    }
    os.seteuid(CODE_UID)
    try:
        for name, remove in removers.items():
            for line in read_lines("/proc/sysvipc/" + name)[1:]:
                remove(int(line.split()[1]))
    finally:
        os.seteuid(0)
        close_memory()


def take_rights_of_code():
    """Gives the calling process the rights to files that the code has, and no capabilities. The code can neither
    signal nor trace it: it keeps the user that it had.
    """
    os.setgroups([])
    os.setresgid(0, CODE_UID, 0)
    os.setresuid(0, CODE_UID, 0)
    _set_capabilities(0)
    close_memory()


def _prctl(option, value):
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def _set_capabilities(mask):
    """Sets effective and permitted to `mask`, and inheritable (and thereby ambient) to empty."""
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("=II", _LINUX_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)), "capset")


def _check(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (what, os.strerror(code)))
