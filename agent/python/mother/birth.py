"""Runs in the mother's child, as root of its container and then of a user namespace, from its fork to its exec.

Makes a zygote: an interpreter of a job's image, root of a user namespace and nobody on the host.

It runs on the Python of the mother's own image. Nothing of the job's image runs before the last line, the exec.
"""

import os
import resource
import socket

import kernel
from files import write_file

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


def make_folders():
    os.makedirs(_ROOT, exist_ok=True)
    os.makedirs(_BUNDLES, exist_ok=True)


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
