"""Runs in the unpacker, as root that may chown and chroot, from the start to the end of one call's container.

Unpacks the files of an image, a tar on stdin, into a folder of the volume that mothers read.

It runs on the Python of the operator's image. It first makes the folder its root, so that no link in the tar
leads elsewhere. The folder is complete or absent: it gets its name last. bundles.py does the same for bundles.
"""

import fcntl
import json
import os
import shutil
import sys
import tarfile
import time
import uuid

ROOTFS = "/rootfs"
BUNDLES = "/bundles"
# Folders that a sandbox mounts something on.
_PLACES = ("proc", "sys", "dev", "tmp", "code", "input", "output", "packages", "etc")
# Names that code written for other services has for /output: LibreChat's and E2B's.
_ALIASES = ("mnt/data", "home/user")
_PIECE = 1024 * 1024
FOUND_BY_NAME = 0o711
# Longer than any agent starts zygotes on a folder without asking for it again.
_UNUSED_S = 24 * 3600


def main(settings):
    # A zygote mounts it before there is a bundle.
    hide_names_of_bundles()
    final = "%s/%s" % (ROOTFS, settings["name"])
    present = os.path.isdir(final)
    if not present:
        clean()
    print(json.dumps({"present": present}), flush=True)
    if present:
        os.utime(final)
        return
    partial = "%s/partial-%s" % (ROOTFS, uuid.uuid4().hex)
    os.mkdir(partial)

    def work():
        unpack(*settings["ids"])
        furnish(settings["hostname"], settings["ids"][0])
        os.sync()

    if fill(partial, work) != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise SystemExit(1)
    os.utime(partial)
    publish(partial, final)


def hide_names_of_bundles():
    """Hides the names of bundles from zygotes, which see this folder: only a process that knows a name finds the bundle."""
    os.chmod(BUNDLES, FOUND_BY_NAME)


def fill(folder, work):
    """Has a child do `work` with `folder` as its root; returns the child's exit code, which `work` may give."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.chroot(folder)
            os.chdir("/")
            # From here on the modules on sys.path are those of the files.
            sys.meta_path.clear()
            os.umask(0)
            status = work() or 0
        except BaseException as error:
            print("%s: %s" % (type(error).__name__, error), file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def publish(partial, final):
    """Gives a complete folder its name, unless another one has it already."""
    try:
        os.rename(partial, final)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not os.path.isdir(final):
            raise


def clean():
    """Removes folders that no agent has asked for in a day and no zygote runs on, and what an interrupted run left."""
    for name in os.listdir(ROOTFS):
        try:
            folder = os.open("%s/%s" % (ROOTFS, name), os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # another agent is removing them, too
        try:
            if time.time() - os.fstat(folder).st_mtime > _UNUSED_S:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree("%s/%s" % (ROOTFS, name), ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(folder)


class Member(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, archive):
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:
            archive.has_ended = True
            raise


class Archive(tarfile.TarFile):
    """Knows whether its end has come: tarfile takes one that breaks off between two files for a whole one."""

    tarinfo = Member
    has_ended = False


def unpack(base, count):
    os.lchown("/", base, base)
    os.chmod("/", 0o755)
    folders = []
    with Archive.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            path = "/" + member.name.strip("/")
            if path == "/.":
                continue
            if make(archive, member, path):
                os.lchown(path, base + min(member.uid, count - 1), base + min(member.gid, count - 1))
                if not member.issym():
                    os.chmod(path, member.mode & 0o7777)
                if member.isdir():
                    folders.append((path, member.mtime))
                else:
                    os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
        if not archive.has_ended:
            raise EOFError("the files of the image ended early")
    for path, mtime in reversed(folders):
        os.utime(path, (mtime, mtime))


def make(archive, member, path):
    """Makes a file, folder or link; False for devices and pipes, which a sandbox has no use for."""
    if member.isdir():
        os.makedirs(path, exist_ok=True)
    elif member.isreg():
        with open(path, "xb") as file:
            shutil.copyfileobj(archive.extractfile(member), file, _PIECE)
    elif member.issym():
        os.symlink(member.linkname, path)
    elif member.islnk():
        os.link("/" + member.linkname.lstrip("/"), path, follow_symlinks=False)
        return False
    else:
        return False
    return True


def furnish(hostname, base):
    for name in _PLACES:
        if not os.path.isdir("/" + name):
            os.mkdir("/" + name, 0o755)
            os.lchown("/" + name, base, base)
    for alias in _ALIASES:
        path = "/" + alias
        if not os.path.lexists(path) and os.path.isdir(os.path.dirname(path)):
            os.symlink("/output", path)
            os.lchown(path, base, base)
    lines = ("127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback", "127.0.1.1\t" + hostname)
    for name, text in (("hosts", "\n".join(lines) + "\n"), ("hostname", hostname + "\n"), ("resolv.conf", "")):
        path = "/etc/" + name
        if os.path.lexists(path):
            os.unlink(path)
        with open(path, "x") as file:
            file.write(text)
        os.chmod(path, 0o644)
        os.lchown(path, base, base)
