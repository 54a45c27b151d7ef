"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to its end.

What the sandbox uses: CPU time, sockets, locks of files, and how many processes the OOM killer killed."""

import os
import resource
import time

from files import read_lines

# Between two looks at the number of sockets, where there were few, and where there were many.
_LOOK_S, _SOON_S = 0.02, 0.005
# Counting locks holds up every lock of the host for up to 30 ms. In this time in the kernel, code makes some 10 MiB.
_LOCKS_AFTER_MS, _MOST_LOCKS = 50, 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# The same between calls while nothing runs.
_IDLE_S = 0.25


def children_cpu_ms():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000


def cpu_ms_of(pid):
    """CPU time of a process; 0 if its end was seen. Then children_cpu_ms has it."""
    try:
        after_name = read_lines("/proc/%s/stat" % pid)[0].rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) * 1000 / _TICKS_PER_S


def others_cpu_ms():
    """CPU time of this container without PID 1, from cgroup v2 or v1; 0 if neither can be read."""
    own_ms = time.process_time() * 1000
    try:
        stat = dict(line.split() for line in read_lines("/sys/fs/cgroup/cpu.stat"))
        if "nr_periods" in stat:  # else it is the host's
            return int(stat["usage_usec"]) / 1e3 - own_ms
    except OSError:
        pass
    try:
        return int(read_lines("/sys/fs/cgroup/cpuacct/cpuacct.usage")[0]) / 1e6 - own_ms
    except OSError:
        return 0.0


def system_ms():
    """CPU time of this container in the kernel, from cgroup v2 or v1; 0 if neither can be read."""
    try:
        stat = dict(line.split() for line in read_lines("/sys/fs/cgroup/cpu.stat"))
        if "nr_periods" in stat:  # else it is the host's
            return int(stat["system_usec"]) / 1e3
    except OSError:
        pass
    try:
        return int(read_lines("/sys/fs/cgroup/cpuacct/cpuacct.usage_sys")[0]) / 1e6
    except OSError:
        return 0.0


# /proc/locks, which enter.py opened before it was masked; None in a container of the job's own.
locks_fd = None


def has_more_locks(most):
    """Whether processes of this container have more locks of files; not if gVisor hides them."""
    count = 0
    try:
        if locks_fd is not None:
            os.lseek(locks_fd, 0, os.SEEK_SET)
        with open("/proc/locks" if locks_fd is None else os.dup(locks_fd)) as lines:
            for line in lines:
                # The kernel shows those of open file descriptions everywhere; the filter lets the code make none.
                count += " OFDLCK " not in line
                if count > most:
                    return True
    except OSError:
        pass
    return False


def count_sockets():
    """Sockets of this container's network namespace, of every kind and state; 0 if gVisor hides them."""
    try:
        return int(read_lines("/proc/net/sockstat")[0].split()[-1])
    except (OSError, ValueError):
        return 0


def memory_left():
    """Unused bytes of this container's memory limit, from cgroup v2 or v1; a huge number if neither can be read."""
    for used, most in (("memory.current", "memory.max"), ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes")):
        try:
            used, most = (int(read_lines("/sys/fs/cgroup/" + name)[0]) for name in (used, most))
            return most - used
        except (OSError, ValueError):
            pass
    return 1 << 62


def count_oom_kills():
    """Number of processes of this container that the OOM killer killed, from cgroup v2 or v1."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            return int(dict(line.split() for line in read_lines(path))["oom_kill"])
        except (OSError, KeyError, ValueError):
            pass
    return 0


class Watch:
    """Looks for what no limit of the kernel counts: sockets, and locks of files. There is one for all calls of a
    session: each may make few locks, and they stay."""

    due = float("inf")
    _looked_ms, _used_ms = None, 0.0

    def begin(self, most_sockets):
        """Starts to look, or goes on. The next look comes soon, also if the last ones were far apart."""
        self._most = most_sockets
        if self._looked_ms is None:
            self._looked_ms = system_ms()
        self.due = min(self.due, time.monotonic() + _LOOK_S)
        return self

    def look(self, now):
        """Returns what there is too much of, or None."""
        sockets = count_sockets() if self._most else 0
        if sockets > self._most:
            return "sockets"
        used_ms = system_ms()
        if used_ms - self._looked_ms > _LOCKS_AFTER_MS:
            self._looked_ms = used_ms
            if has_more_locks(_MOST_LOCKS):
                return "locks"
        self.due = now + (_SOON_S if sockets > self._most // 16 else _LOOK_S)
        return None

    def look_between_calls(self, now):
        """The same, and seldom while nothing uses CPU time."""
        excess = self.look(now)
        used_ms, before_ms = others_cpu_ms(), self._used_ms
        self._used_ms = used_ms
        if used_ms - before_ms < 0.1:
            self.due = now + _IDLE_S
        return excess
