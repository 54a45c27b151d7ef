# Precedes gate.py if a container serves several jobs. The interpreter at the gate stays there, with
# the rights of the code and without anything of a job. Each job is a fork of it.


def import_for_forks():
    """Imports what fork_jobs needs before the freeze. Returns the modules and importers that existed before."""
    import sys

    known = set(sys.modules), set(sys.path_importer_cache)
    import _socket  # noqa: F401
    import ctypes  # noqa: F401
    import resource  # noqa: F401
    import struct  # noqa: F401

    return known


def fork_jobs(known):
    """Forks at each request of the supervisor, and returns in the job's process only.

    Removes all modules and importers except the known ones. A request brings the descriptors that become go_fd,
    tell_fd, stdout and stderr. Returns why one job could leave traces here for the next one, or "".
    """
    import _socket
    import ctypes
    import gc
    import posix
    import resource
    import struct
    import sys

    libc = ctypes.CDLL(None)
    # add_key, ioprio_get, sched_getattr, clone; shmget, semget, msgget, mq_open, unshare, setns
    machines = {
        "x86_64": (248, 252, 315, 56, 29, 64, 68, 240, 272, 308),
        "aarch64": (217, 31, 275, 220, 194, 190, 186, 180, 97, 268),
    }
    calls = machines.get(posix.uname().machine, (-1,) * 10)
    add_key, ioprio_get, sched_getattr, clone, *never = calls
    clone3, new_namespace, enosys = 435, 0x7E020000, 38
    # All of them, because Python does not name RLIMIT_LOCKS. Source: linux/include/uapi/asm-generic/resource.h.
    resource_limits = 16

    def lasting_traces():
        with open("/proc/self/maps") as maps:
            if any(line.split()[1] in ("rw-s", "-w-s", "rwxs") for line in maps):
                return "a preloaded module shares memory"
        if not {int(fd) for fd in posix.listdir("/proc/self/fd")} <= {0, 1, 2, control_fd, 3}:
            return "a preloaded module keeps files open"
        if libc.syscall(add_key, b"user", b"airlock", b"x", 1, -1) >= 0:
            return "the kernel's keyrings are open to the code"
        if add_key < 0:
            return "the machine's system calls are not known"
        if not path_exists("/proc/sysvipc/shm") and not deny(never):
            return "objects of IPC could be left and not be found, and settings of the network"
        return ""

    def path_exists(path):
        try:
            return bool(posix.stat(path))
        except FileNotFoundError:
            return False

    def deny(numbers):
        """Makes these system calls and new namespaces fail with EPERM, in this process and its
        forks.

        Under gVisor, root in a user namespace could set up the network of the whole container. Source: seccomp(2).
        """
        count = len(numbers)
        lines = [(0x20, 0, 0, 0)]  # load the call's number
        lines += [(0x15, count + 4 - i, 0, number) for i, number in enumerate(numbers)]  # jump if equal
        lines += [(0x15, 5, 0, clone3), (0x15, 0, 2, clone)]
        lines += [(0x20, 0, 0, 16), (0x45, 1, 0, new_namespace)]  # load clone's flags; jump if any is set
        lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]  # allow; else EPERM
        # A filter cannot see clone3's flags; on ENOSYS the C library uses clone.
        lines += [(0x06, 0, 0, 0x00050000 | enosys)]
        program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
        header = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(program))
        return libc.prctl(22, 2, ctypes.create_string_buffer(header), 0, 0) == 0

    def condition():
        """What another process of the same user can change in this one, except memory and
        descriptors.
        """
        scheduling = ctypes.create_string_buffer(64)
        libc.syscall(sched_getattr, 0, scheduling, 64, 0)
        return (
            [resource.getrlimit(number) for number in range(resource_limits)],
            posix.getpriority(posix.PRIO_PROCESS, 0),
            posix.sched_getaffinity(0),
            posix.sched_getscheduler(0),
            libc.syscall(ioprio_get, 1, 0),
            scheduling.raw,
        )

    def wait_for_request():
        word, rights, _, _ = control.recvmsg(1, _socket.CMSG_SPACE(16))
        if word != b"f" or condition() != at_first:
            posix._exit(1)
        data = rights[0][2]
        return [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, 16, 4)]

    try:
        traces = lasting_traces()
        libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: its memory is closed to other processes
        null = posix.open("/dev/null", posix.O_RDWR)
        for fd in (0, 1, 2):
            posix.dup2(null, fd)
        posix.close(null)
        control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, control_fd)
        for record, names in zip((sys.modules, sys.path_importer_cache), known):
            for name in set(record) - names:
                del record[name]
        gc.collect()
        at_first = condition()
        while True:
            received = wait_for_request()
            # The process in between ends at once, so the job becomes a child of PID 1.
            between = posix.fork()
            if between == 0:
                if posix.fork() != 0:
                    posix._exit(0)
                break
            posix.waitpid(between, 0)
            for fd in received:
                posix.close(fd)
    except BaseException:
        posix._exit(1)

    control.close()
    received.append(posix.open("/dev/null", posix.O_RDONLY))
    for fd, target in zip(received, (go_fd, tell_fd, 1, 2, 0)):
        posix.dup2(fd, target)
        posix.close(fd)
    posix.setsid()
    libc.prctl(4, 1, 0, 0, 0)
    try:
        score = posix.open("/proc/self/oom_score_adj", posix.O_WRONLY)
        posix.write(score, b"1000")
        posix.close(score)
    except OSError:
        pass
    # The random generators of Python, OpenSSL and the C library notice a fork; numpy's does not.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    while posix.getppid() != 1:
        posix.sched_yield()
    return traces
