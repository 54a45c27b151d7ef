"""Runs in the mother, as root of its container, from the container's start to its end.

Control groups of zygotes and jobs, inside the groups that the engine made for this container.

Sources: cgroups(7); the kernel's admin-guide/cgroup-v1/memory.rst and admin-guide/cgroup-v2.rst.
"""

import contextlib
import os
import signal

from files import read_lines, write_file
from kernel import SAFE, mount

FOLDER = "/run/groups"
_CPU_PERIOD_US = 100_000
_TCP_BYTES = 16 << 20
_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")


class Limits:
    """memory: bytes, swap included; pids: processes and threads; cpus: in fractions, 0 for no limit."""

    def __init__(self, memory, pids, cpus):
        self.memory, self.pids, self.cpus = int(memory), int(pids), cpus


class GroupsV2:
    def __init__(self):
        os.mkdir(FOLDER)
        mount("cgroup2", FOLDER, "cgroup2", SAFE)
        # A group with controllers for its children holds no process.
        os.mkdir(FOLDER + "/mother")
        write_file(FOLDER + "/mother/cgroup.procs", b"1")
        write_file(FOLDER + "/cgroup.subtree_control", b"+memory +pids +cpu")

    def make(self, name, limits):
        group = "%s/%s" % (FOLDER, name)
        with _complete([group]):
            _write(group, "memory.max", limits.memory)
            _write_if_there(group, "memory.swap.max", 0)
            _write(group, "pids.max", limits.pids)
            if limits.cpus:
                _write(group, "cpu.max", "%d %d" % (limits.cpus * _CPU_PERIOD_US, _CPU_PERIOD_US))
        return [group]

    def place(self, groups, pid):
        _write(groups[0], "cgroup.procs", pid)


class GroupsV1:
    def __init__(self):
        os.mkdir(FOLDER)
        mount("tmpfs", FOLDER, "tmpfs", SAFE, "mode=755")
        self._folders = {}
        for controllers in hierarchies():
            folder = "%s/%s" % (FOLDER, "-".join(controllers))
            os.mkdir(folder)
            mount("cgroup", folder, "cgroup", SAFE, ",".join(controllers))
            for controller in controllers:
                self._folders[controller] = folder
        missing = set(_CONTROLLERS) - set(self._folders)
        if missing:
            raise OSError("the kernel has no control groups for %s" % ", ".join(sorted(missing)))

    def make(self, name, limits):
        memory, pids, cpu, cpuacct = ("%s/%s" % (self._folders[each], name) for each in _CONTROLLERS)
        # Several controllers may share a hierarchy, and the same group.
        groups = list(dict.fromkeys((memory, pids, cpu, cpuacct)))
        with _complete(groups):
            _write(memory, "memory.limit_in_bytes", limits.memory)
            _write_if_there(memory, "memory.memsw.limit_in_bytes", limits.memory)
            # The kernel counts buffers of sockets apart from other memory, and only if they have a limit.
            _write_if_there(memory, "memory.kmem.tcp.limit_in_bytes", _TCP_BYTES)
            _write(pids, "pids.max", limits.pids)
            if limits.cpus:
                _write(cpu, "cpu.cfs_quota_us", int(limits.cpus * _CPU_PERIOD_US))
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
        remove(made)
        raise


def open_groups():
    os.makedirs(os.path.dirname(FOLDER), exist_ok=True)
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


def count_oom_kills(groups):
    """Processes of a job that the kernel killed because the group's memory was full."""
    for group in groups:
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = read_lines("%s/%s" % (group, name))
                return int(dict(line.split() for line in lines)["oom_kill"])
            except (OSError, KeyError, ValueError):
                pass
    return 0


def _kill(groups):
    """Kills what is in the groups: processes that a hostile zygote has left there."""
    for group in groups:
        _write_if_there(group, "pids.max", 0)
    for pid in read_lines(groups[0] + "/cgroup.procs"):
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass


def remove(groups):
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
