"""Runs in the unpacker, as root that may chown and chroot, from the start to the end of one call's container.

Writes the volumes that mothers read, on the Python of the operator's image: the files of an image, a tar on stdin
(unpack_image), and bundles, which are packages or one input file (change_bundles).

It first makes a folder its root, so that no link in the tar leads elsewhere. The folder is complete or absent: it gets
its name last.

The files of a bundle are in BUNDLES/NAME/files. They come on stdin, as an installation has sent them (packages.py): A
head of a file (JSON), D its data, Z the end. Whoever makes, removes or uses a bundle holds a lock on BUNDLES/NAME: a
locked bundle is not removed.

Nothing waits for the disk with bundles, because a sync can take a minute. So a bundle is valid only until the machine
boots again: BUNDLES/NAME/about has its bytes, and the id of the boot in which it was written.
"""

import contextlib
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
# The user that runs the code.
_ACCOUNTS = {"passwd": b"user:x:1000:1000::/tmp:/bin/sh", "group": b"user:x:1000:"}
_PIECE = 1024 * 1024
FOUND_BY_NAME = 0o711
# Longer than any agent starts zygotes on a folder without asking for it again.
_UNUSED_S = 24 * 3600
# Tenants may have new images built all day, each with all the files of what it is built on.
_MOST_FOLDERS = 64
_PARTIAL = "partial-"
_FULL = 3
_BLOCK = 4096
_MAX_PAYLOAD = 256 * 1024
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def unpack_image(settings):
    """Unpacks the files of an image into a folder of its name."""
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


def change_bundles(settings):
    """Removes bundles and adds one. Prints what there is then."""
    hide_names_of_bundles()
    for name in set(os.listdir(BUNDLES)) - set(sizes()):
        remove_bundle(name)
    for name in settings["remove"]:
        remove_bundle(name)
    full = settings["name"] is not None and not add_bundle(settings)
    print(json.dumps({"bundles": sizes(), "full": full}), flush=True)


def remove_bundle(name):
    try:
        folder = _lock(name)
    except FileNotFoundError:
        return
    if folder is None:
        return
    doomed = "%s/%s" % (BUNDLES, _new_name())
    os.rename("%s/%s" % (BUNDLES, name), doomed)
    shutil.rmtree(doomed)
    os.close(folder)


def add_bundle(settings):
    """False if there is no room for the bundle."""
    folder = None
    while folder is None:
        name = _new_name()
        partial = "%s/%s" % (BUNDLES, name)
        os.makedirs(partial + "/files")
        try:
            # If a zygote could open the folder, it could lock it.
            os.chmod(partial, FOUND_BY_NAME)
            folder = _lock(name)
        except FileNotFoundError:
            pass  # another run has taken it for the rest of an interrupted one, and removed it
    base = settings["ids"][0]
    os.lchown(partial + "/files", base, base)
    with open(partial + "/about", "w") as about:
        writer = Writer(base, settings["room"], about)
        status = fill(partial + "/files", writer.take_all)
    if status != 0:
        shutil.rmtree(partial)
        if status == _FULL:
            return False
        raise SystemExit(1)
    publish(partial, "%s/%s" % (BUNDLES, settings["name"]))
    os.close(folder)
    return True


def sizes():
    """The bytes of each bundle that is complete."""
    found = {}
    for name in os.listdir(BUNDLES):
        try:
            if not name.startswith(_PARTIAL):
                with open("%s/%s/about" % (BUNDLES, name)) as file:
                    about = json.load(file)
                if about["boot"] == boot_id():
                    found[name] = about["bytes"]
        except (FileNotFoundError, ValueError):
            pass  # another run has just removed it, or it never reached the disk
    return found


def boot_id():
    with open(_BOOT_ID) as file:
        return file.read().strip()


class Writer:
    """Writes the files of a bundle below the root of its process, as long as there is room."""

    def __init__(self, base, room, about):
        self._base, self._room, self._about = base, room, about
        self._boot = boot_id()  # its process has no /proc
        self._used = 0
        self._file = None

    def take_all(self):
        """Reads to the end even if there is no room: the agent must be able to send everything."""
        for kind, payload in frames(sys.stdin.buffer):
            if kind == b"A":
                self._used += _BLOCK
            self._used += len(payload)
            if self._used <= self._room:
                self._take(kind, payload)
        self._close()
        json.dump({"bytes": self._used, "boot": self._boot}, self._about)
        self._about.flush()
        return 0 if self._used <= self._room else _FULL

    def _take(self, kind, payload):
        if kind == b"D":
            self._file.write(payload)
            return
        self._close()
        head = json.loads(payload)
        parts = head["name"].split("/")
        if not all(parts) or not {".", ".."}.isdisjoint(parts):
            raise ValueError("not a name below a folder")
        for end in range(1, len(parts)):
            self._make_folder("/" + "/".join(parts[:end]))
        self._file = open("/" + "/".join(parts), "xb")
        os.chown(self._file.fileno(), self._base, self._base)
        os.chmod(self._file.fileno(), 0o755 if head["executable"] else 0o644)
        self._mtime = head["mtime"]

    def _make_folder(self, path):
        if not os.path.isdir(path):
            os.mkdir(path, 0o755)
            os.chown(path, self._base, self._base)
            self._used += _BLOCK

    def _close(self):
        if self._file is not None:
            self._file.close()
            os.utime(self._file.name, (self._mtime, self._mtime))
            self._file = None


def frames(source):
    """Yields frames up to the end Z; an earlier end is an error."""
    while True:
        head = source.read(5)
        size = int.from_bytes(head[1:], "big")
        if size > _MAX_PAYLOAD:
            raise ValueError("frame too long")
        payload = source.read(size)
        if len(head) < 5 or len(payload) < size:
            raise EOFError("the files of a bundle ended early")
        if head[:1] == b"Z":
            return
        yield head[:1], payload


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
    """Removes folders that no zygote runs on: those that no agent has asked for in a day, and those that were asked for
    longest ago where there are too many. Also what an interrupted run left.
    """
    asked = {}
    for name in os.listdir(ROOTFS):
        with contextlib.suppress(FileNotFoundError):  # another agent is removing them, too
            asked[name] = os.stat("%s/%s" % (ROOTFS, name)).st_mtime
    whole = [name for name in sorted(asked, key=asked.get) if not name.startswith(_PARTIAL)]
    # There is to be room for the one that is unpacked now.
    surplus = whole[: 1 - _MOST_FOLDERS]
    for name in asked:
        try:
            folder = os.open("%s/%s" % (ROOTFS, name), os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            if name in surplus or time.time() - os.fstat(folder).st_mtime > _UNUSED_S:
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
    for name, entry in _ACCOUNTS.items():
        add_account("/etc/" + name, entry, base)


def add_account(path, entry, base):
    """Adds a line to passwd or group, unless its name or id is there."""
    name, _, number = entry.split(b":")[:3]
    is_new = not os.path.lexists(path)
    if not is_new and (os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > _PIECE):
        return
    with open(path, "ab+") as file:
        file.seek(0)
        text = file.read()
        taken = [line.split(b":")[:3] for line in text.splitlines()]
        if not any(each[0] == name or each[2:] == [number] for each in taken):
            file.write((b"" if text.endswith(b"\n") or not text else b"\n") + entry + b"\n")
    if is_new:
        os.chmod(path, 0o644)
        os.lchown(path, base, base)


def _lock(name):
    """Locks a bundle and returns the descriptor of its folder; None if the bundle is in use."""
    folder = os.open("%s/%s" % (BUNDLES, name), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        return None
    return folder


def _new_name():
    return _PARTIAL + uuid.uuid4().hex
