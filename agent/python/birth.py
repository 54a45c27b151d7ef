"""Runs in the mother and its child, as root of its container, from the mother's start to the exec of each zygote.

Zygotes as the mother sees them, and the birth of each: an interpreter of a job's image, root of a user namespace and
nobody on the host.

The child runs on the Python of the mother's own image. Nothing of the job's image runs before the last line, the exec.
"""

import fcntl
import os
import resource
import signal
import socket

import kernel
from kernel import write_file
from link import to_json

ROOTFS = "/rootfs"
BUNDLES = "/bundles"
READY_FOR_IDS = b"x"
PID_BYTES = 4
_ROOT = "/run/root"
_BUNDLES = "/run/bundles"
_CONTROL_FD = 1021
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_FILES_LIMIT = 4096
_BEGIN = "/code/.gate/begin"
# Folder of what a zygote prepares for its jobs to mount; "root" in it becomes the root of a job.
_STAGE = "/input"
# CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_NET_ADMIN, CAP_SYS_ADMIN, and CAP_SETFCAP to give jobs their ids
_KEPT = (5, 6, 7, 8, 12, 21, 31)
_MAX_OUTPUT = 4096
_MAX_WORD = 4096


def begin(settings):
    """Closes what PID 1 needs no more, before anything else starts."""
    kernel.make_mounts_private()
    kernel.bind("/proc/sys", "/proc/sys", kernel.RDONLY | kernel.SAFE)
    os.makedirs(_ROOT, exist_ok=True)
    os.makedirs(_BUNDLES, exist_ok=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kernel.set_no_new_privileges()


class Zygote:
    """A zygote and the jobs that were forked from it. It tells the agent when it is ready, and when it has ended."""

    def __init__(self, mother, number, order):
        self.mother, self.number = mother, number
        self.jobs = set()
        self._retired = self._is_ready = False
        self._output = b""
        self._pidfd = None
        self._problem = "the zygote ended"
        self._locks = []
        self._birth = []
        self.groups = []
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.output, its_output = os.pipe()
        os.set_blocking(self.output, False)
        try:
            self._locks.append(lock_root(order["root"]))
            self.groups = mother.groups.make("zygote-%d" % number, order)
            self._begin(order, theirs.fileno(), its_output)
        except OSError:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(its_output)
        mother.handle(self.control.fileno(), self._hear)
        mother.handle(self.output, self._read_output)

    def _begin(self, order, control, output):
        """Starts the process in its groups; it says on `control` when it is ready. Waits for nothing, so that other jobs
        go on: the kernel may need long for the namespaces."""
        told, tell = os.pipe()
        hold, let_go = os.pipe()
        os.set_blocking(told, False)
        self._birth = [told, let_go]
        try:
            pid = os.fork()
            if pid == 0:
                os.close(told)
                os.close(let_go)
                become_zygote(self.mother.settings, order, control, output, tell, hold)
        finally:
            os.close(tell)
            os.close(hold)
        self.mother.groups.place(self.groups, pid)
        self.mother.handle(told, lambda: self._follow_birth(pid))

    def _follow_birth(self, pid):
        """Reads what its birth tells: that it needs its ids, and then the pid of the zygote, its child."""
        told, let_go = self._birth
        try:
            word = os.read(told, PID_BYTES)
            if word == READY_FOR_IDS:
                base, count = self.mother.settings["ids"]
                for name in ("uid_map", "gid_map"):
                    write_file("/proc/%d/%s" % (pid, name), b"0 %d %d" % (base, count), 0)
                os.write(let_go, READY_FOR_IDS)
                return
            if word:
                # Its parent waits, so no other process can have this pid.
                self._pidfd = os.pidfd_open(int.from_bytes(word, "big"))
        except OSError as error:
            self._problem = str(error)
        self._end_birth()
        if self._pidfd is None:
            self._end()  # nothing could end it later but the end of its groups
        else:
            self.end_if_done()

    def _end_birth(self):
        if self._birth:
            self.mother.forget(self._birth[0])
        while self._birth:
            os.close(self._birth.pop())

    def request(self, request, descriptors):
        socket.send_fds(self.control, [request], descriptors, socket.MSG_DONTWAIT)

    def retire(self):
        self._retired = True
        self.end_if_done()

    def end_if_done(self):
        """Kills a retired zygote after its last job. Its image's modules could ignore a request to end."""
        if self._retired and not self.jobs:
            self._kill()

    def _kill(self):
        """Ends it with all that it has started: it is PID 1 of its namespace."""
        if self._pidfd is not None:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def has_ended(self):
        """Whether its process has ended: the kernel closes the socket before it ends the jobs of that process."""
        try:
            return self.control.fileno() < 0 or not self.control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _hear(self):
        try:
            word = self.control.recv(_MAX_WORD)
        except OSError:
            word = b""
        # A zygote sends one message. Further ones would delay the frames of all jobs.
        if word and not self._is_ready:
            self._is_ready = True
            # To read its output while it serves jobs would only cost time. What the pipe holds is read at its end.
            self.mother.forget(self.output)
            self.mother.switch.put(self.number, b"Y", word)
            return
        self._end()

    def _end(self):
        self._read_output()
        report = {"problem": self._problem, "output": self._output.decode("utf-8", "replace")}
        self._close()
        self.mother.zygotes.pop(self.number, None)
        self.mother.switch.put(self.number, b"N", to_json(report))

    def _read_output(self):
        try:
            data = os.read(self.output, 64 * 1024)
        except BlockingIOError:
            return
        self._output = (self._output + data)[-_MAX_OUTPUT:]
        if not data:
            self.mother.forget(self.output)

    def _close(self):
        self._end_birth()
        self._kill()
        for fd in (self.control.fileno(), self.output):
            self.mother.forget(fd)
        self.control.close()
        os.close(self.output)
        while self._locks:
            os.close(self._locks.pop())
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self.mother.drop_groups(self.groups)


def lock_root(name):
    """Locks an image's files, so that no agent removes them while something runs on them; see unpack.py."""
    folder = os.open("%s/%s" % (ROOTFS, name), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # a job has locked its root, which keeps it too
    return folder


def become_zygote(settings, order, control, output, tell, hold):
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        _enter(order, settings["ids"][0], tell, hold)
        _furnish(settings, order)
        _exec(order, control)
    except BaseException as error:
        os.write(2, ("%s: %s" % (type(error).__name__, error)).encode())
    finally:
        os._exit(127)


def _enter(order, base, tell, hold):
    """Enters namespaces of its own, in which only the image's files are left."""
    kernel.unshare(kernel.NEWNS)
    kernel.bind("%s/%s" % (ROOTFS, order["root"]), _ROOT)
    kernel.bind(BUNDLES, _BUNDLES)
    # A new user namespace can mount /proc only if nothing covers a part of this /proc. It cannot unmount what it
    # inherits.
    for place in ("/proc/sys", "/run/groups", ROOTFS, BUNDLES):
        kernel.unmount(place)
    # This keyring counts against root's limit of keys. One hostile image could use up the limit of the ids below.
    kernel.join_new_keyring()
    os.setegid(base)
    # The limits of a user namespace count against its creator.
    os.seteuid(base)
    kernel.unshare(kernel.ZYGOTE_NAMESPACES)
    os.write(tell, READY_FOR_IDS)
    if os.read(hold, 1) != READY_FOR_IDS:
        raise OSError("the mother could not map its ids")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.setgroups([])
    pid = os.fork()
    if pid:
        os.write(tell, pid.to_bytes(PID_BYTES, "big"))
        # Waits until the mother has a pidfd of the zygote. After this exit, the zygote is a child of the mother.
        os.read(hold, 1)
        os._exit(0)
    os.close(hold)


def _furnish(settings, order):
    """Makes the root of the zygote, and under _STAGE the tree that a job's root begins as."""
    kernel.make_mounts_private()
    root, stage = _ROOT, _ROOT + _STAGE
    kernel.bind(root, root)
    kernel.mount("proc", root + "/proc", "proc", kernel.SAFE)
    for name in settings["closed_limits"]:
        write_file("%s/proc/sys/user/%s" % (root, name), b"%d" % settings["closed_limits"][name], 0)
    kernel.mount("sysfs", root + "/sys", "sysfs", kernel.RDONLY | kernel.SAFE)
    kernel.mount("tmpfs", stage, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=755")
    os.mkdir(stage + "/root")
    os.mkdir(stage + "/empty")
    os.mkdir(stage + "/bundles")
    kernel.bind(_BUNDLES, stage + "/bundles", kernel.RDONLY | kernel.NOSUID | kernel.NODEV)
    kernel.bind(root, stage + "/root", kernel.RDONLY | kernel.NOSUID | kernel.NODEV)
    _make_devices(stage + "/root/dev")
    # Shared by the jobs, so not even root may write in it.
    kernel.remount(stage + "/root/dev", kernel.RDONLY | kernel.NOSUID | kernel.NOEXEC)
    kernel.bind(stage + "/root/dev", root + "/dev", kernel.REC)
    for folder in ("/tmp", "/output", "/dev/shm"):
        kernel.mount("tmpfs", root + folder, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=1777")
    kernel.mount("tmpfs", root + "/code", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=755")
    os.mkdir(root + "/code/.gate")
    write_file(root + _BEGIN, order["program"].encode())
    kernel.pivot_into(root)
    socket.sethostname(settings["hostname"])


def _make_devices(folder):
    """Device files cannot be made in a user namespace: these are the engine's."""
    kernel.mount("tmpfs", folder, "tmpfs", kernel.NOSUID | kernel.NOEXEC, "mode=755,size=64k")
    for name in _DEVICES:
        os.close(os.open("%s/%s" % (folder, name), os.O_CREAT | os.O_WRONLY))
        # Times of the node would tell jobs about each other; a read-only mount keeps them as they are. The device
        # itself can still be written.
        kernel.bind("/dev/" + name, "%s/%s" % (folder, name), kernel.RDONLY | kernel.NOSUID | kernel.NOEXEC)
    for name, target in _LINKS.items():
        os.symlink(target, "%s/%s" % (folder, name))
    for name in ("shm", "mqueue", "pts"):
        os.mkdir("%s/%s" % (folder, name))


def _exec(order, control):
    os.dup2(control, _CONTROL_FD)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    kernel.close_descriptors_except({0, 1, 2, _CONTROL_FD})
    os.set_inheritable(_CONTROL_FD, True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES_LIMIT, _FILES_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order["filter"]:
        kernel.add_filter(bytes.fromhex(order["filter"]))
    kernel.keep_capabilities(_KEPT, _KEPT)
    os.chdir("/output")
    os.execvpe("python3", ["python3", "-I", "-S", _BEGIN], order["env"])
