"""Runs in the unpacker, as root that may chown and chroot, from the start to the end of one call's container.

Adds and removes bundles in the volume that mothers read: packages, or one input file.

It runs on the Python of the operator's image. The files of a bundle are in BUNDLES/NAME/files, complete or
absent. They come on stdin, as an installation has sent them (packages.py): A head of a file (JSON), D its
data, Z the end. Whoever makes, removes or uses a bundle holds a lock on BUNDLES/NAME: a locked bundle is
not removed.

Nothing waits for the disk, because a sync can take a minute. So a bundle is valid only until the machine
boots again: BUNDLES/NAME/about has its bytes, and the id of the boot in which it was written.
"""

import fcntl
import json
import os
import shutil
import sys
import uuid

from unpack import FOUND_BY_NAME, BUNDLES, fill, hide_names_of_bundles, publish

_PARTIAL = "partial-"
_FULL = 3
_BLOCK = 4096
_MAX_PAYLOAD = 256 * 1024
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def main(settings):
    hide_names_of_bundles()
    for name in set(os.listdir(BUNDLES)) - set(sizes()):
        remove(name)
    for name in settings["remove"]:
        remove(name)
    full = settings["name"] is not None and not add(settings)
    print(json.dumps({"bundles": sizes(), "full": full}), flush=True)


def remove(name):
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


def add(settings):
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
