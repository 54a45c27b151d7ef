"""Restores a container to its state before the last job. All processes of that job must have
ended.
"""

import contextlib
import ctypes
import itertools
import os
import stat
import time

from files import read_lines
from job import INPUTS
from privileges import CODE_UID, close_memory

_WRITABLE = ("/output", "/tmp", "/dev/shm", "/dev/mqueue")
_DEVICES = ("/dev", "/dev/pts")
_OURS = ("/code/main.py", "/input/data.json", *INPUTS.values())
_SAFE_MOUNTS = ("/proc", "/dev", "/sys", "/code", "/input", "/output", "/packages", "/tmp")
# For gVisor, which does not report the sums.
_FAMILIES = ("unix", "tcp", "tcp6", "udp", "packet")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 1000
_LIMIT_S = 2
_IPC_RMID = 0

_libc = ctypes.CDLL(None, use_errno=True)


class Unclean(Exception):
    """Something of the last job may be left."""


def wipe():
    """Removes what the code could write, its System V IPC objects, and the files of its job."""
    for path in _OURS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    folders = [folder for folder in _WRITABLE if _is_writable(folder)]
    full = [folder for folder in folders if os.listdir(folder)]
    objects = list(_ipc_objects())
    if full or objects:
        with rights_of_code():
            limit = time.monotonic() + _LIMIT_S
            for folder in full:
                _empty(folder, limit)
            for remove, number in objects:
                remove(number)
    forget_times()
    left = [path for path in (*folders, "/code", "/input") if os.listdir(path)]
    left += ["System V IPC" for _ in _ipc_objects()]
    if left:
        raise Unclean("not empty: %s" % ", ".join(left))


@contextlib.contextmanager
def rights_of_code():
    """Has the rights of the code inside. All processes of the code must have ended."""
    os.seteuid(CODE_UID)
    try:
        yield
    finally:
        os.seteuid(0)
        close_memory()


def forget_times():
    """Resets the times of writable folders and of devices. Who may write to a file may set its times."""
    for path in (*filter(_is_writable, _WRITABLE), *_devices()):
        try:
            os.utime(path, (0, 0))
        except PermissionError:
            # Under rootless Podman these are the host's own devices.
            with contextlib.suppress(PermissionError):
                os.utime(path)


def _devices():
    for folder in _DEVICES:
        with os.scandir(folder) as entries:
            for entry in entries:
                if stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode):
                    yield entry.path


def lasting_mounts():
    """Returns writable mounts that are not wiped. A file could outlive its job there."""
    mounts = [line.split() for line in read_lines("/proc/mounts")]
    safe = tuple(folder + "/" for folder in _SAFE_MOUNTS)
    writable = [point for _, point, _, options, *_ in mounts if options.split(",")[0] != "ro"]
    return [point for point in writable if not (point + "/").startswith(safe)]


def count_sockets():
    """Counts sockets of any kind, including those that no process holds: in transit, or in TIME_WAIT.

    Also counts labels of IPv6 flows, which stay for a minute with the address they were made for.

    Reads sums: listing the TCP sockets takes 1.5 ms, because the kernel goes through the host's.
    """
    try:
        sockets, tcp, *_ = map(str.split, read_lines("/proc/net/sockstat"))
        labels = _count_lines("/proc/net/ip6_flowlabel")
        return {"used": sockets[2], "waiting": tcp[tcp.index("tw") + 1], "labels": labels}
    except FileNotFoundError:
        return {family: _count_lines("/proc/net/" + family) for family in _FAMILIES}


def _count_lines(path):
    try:
        return len(read_lines(path))
    except FileNotFoundError:
        return 0


def _is_writable(folder):
    return os.path.isdir(folder) and not os.statvfs(folder).f_flag & os.ST_RDONLY


def _ipc_objects():
    """Lists System V objects. gVisor does not list them, so the zygote denies them there."""
    kinds = (
        ("shm", lambda number: _libc.shmctl(number, _IPC_RMID, None)),
        ("sem", lambda number: _libc.semctl(number, 0, _IPC_RMID)),
        ("msg", lambda number: _libc.msgctl(number, _IPC_RMID, None)),
    )
    for kind, remove in kinds:
        with contextlib.suppress(FileNotFoundError):
            for line in read_lines("/proc/sysvipc/" + kind)[1:]:
                yield remove, int(line.split()[1])


def _empty(folder, limit):
    """Empties a folder. It moves the folders of a subfolder up first, so that no path gets too deep."""
    top = os.open(folder, _DIRECTORY)
    fresh = ("%s-%d" % (os.urandom(8).hex(), number) for number in itertools.count())
    try:
        names = os.listdir(top)
        while names:
            for name in names:
                if time.monotonic() > limit:
                    raise Unclean("%s takes too long to empty" % folder)
                if not _unlink(name, top):
                    _hoist(name, top, fresh, limit)
            names = os.listdir(top)
    finally:
        os.close(top)


def _unlink(name, folder):
    try:
        os.unlink(name, dir_fd=folder)
        return True
    except IsADirectoryError:
        return False


def _hoist(name, top, fresh, limit):
    os.chmod(name, 0o700, dir_fd=top)
    folder = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            if time.monotonic() > limit:
                raise Unclean("too many files to remove")
            if not _unlink(inner, folder):
                os.chmod(inner, 0o700, dir_fd=folder)
                os.rename(inner, next(fresh), src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
