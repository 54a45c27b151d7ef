"""Runs in the collector, as the code's effective user, from the end of a call's code to the end of the call.

The files of a call, while processes of the session may change them: what it has written or fetches, what it brings."""

import os
import time

from collect import FILE, Collector, not_plain
from link import MAX_DATA, to_json

# A folder on the way to a file. Without O_PATH, older versions of gVisor follow a link.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FETCHED = "_fetched/"
_CLOCK_REALTIME_COARSE = 5
# A tick is 10 ms at most.
_NAP_S, _MOST_NAPS = 0.0005, 40
_MAY_FETCH = ("output", "tmp", "input")


class CallCollector(Collector):
    """Sends the files whose inodes have changed after a time in ns (none if it is None), then those to fetch.

    The next call sends those that change after `now_ns`."""

    # Each later call finds them again, and is not to blame.
    too_many = too_deep = "not_searched"

    def __init__(self, fd, max_bytes, max_files, max_result_bytes, since_ns, now_ns, fetch):
        super().__init__(fd, max_bytes, max_files, max_result_bytes)
        self._since_ns = since_ns
        self._now_ns = now_ns
        self._fetch = fetch

    def run(self):
        if self._since_ns is None:
            self._summarize()
        else:
            self._await_tick()
            super().run()

    def _await_tick(self):
        """The kernel stamps changes with its clock's last tick: one in this tick could belong to either call."""
        for _ in range(_MOST_NAPS):  # the clock may be set back
            if time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) > self._now_ns:
                break
            time.sleep(_NAP_S)

    def _summarize(self):
        for path in self._fetch:
            self._send_fetched(path)
        super()._summarize()

    def _send_result(self, root):
        found = self._look_at(root, "result.json")
        if found and found.st_ctime_ns > self._since_ns:
            super()._send_result(root)

    def _consider(self, directory, name, path, found):
        if path.startswith(_FETCHED):
            self._skip("unsafe_name", path)
        # Code can set st_mtime, but not st_ctime.
        elif found.st_ctime_ns > self._since_ns:
            super()._consider(directory, name, path, found)

    def _send(self, directory, name, path, found, result):
        file = self._open(directory, name, FILE)
        if file is None:
            return False
        try:
            if not_plain(os.fstat(file)):
                return False
            self._frame(b"A", to_json({"name": path, "size": found.st_size, "result": result}))
            left = found.st_size
            while left:
                chunk = os.read(file, min(left, MAX_DATA))
                self._frame(b"D", chunk)
                left -= len(chunk)
                if not chunk:  # which drops the file
                    self._skip("changed", path)
                    break
        finally:
            os.close(file)
        return True

    def _send_fetched(self, path):
        parts = path.split("/")[1:] if path[:1] == "/" else ["output", *path.split("/")]
        if parts[0] not in _MAY_FETCH or len(parts) < 2 or not _is_plain(parts):
            self._skip("unsafe_name", path)
            return
        directory = os.open("/", _FOLDER)
        for part in parts[:-1]:
            inner = self._open(directory, part, _FOLDER)
            os.close(directory)
            if inner is None:
                self._skip("missing", path)
                return
            directory = inner
        found = self._look_at(directory, parts[-1])
        if found is None:
            self._skip("missing", path)
        else:
            super()._consider(directory, parts[-1], _FETCHED + path.lstrip("/"), found)
        os.close(directory)

    def _open_up(self, directory):
        pass

    def _look_at(self, directory, name):
        try:
            return super()._look_at(directory, name)
        except OSError:
            return None

    def _open(self, directory, name, flags):
        try:
            return os.open(name, flags, dir_fd=directory)
        except OSError:
            return None


def write_files(files, said):
    """Copies files to names below /output. Writes to `said` why that failed: the classes of the exception, words."""
    for source, name in files:
        try:
            _write(source, name.split("/"))
        except (OSError, ValueError) as error:
            classes = ["%s.%s" % (each.__module__, each.__qualname__) for each in type(error).__mro__]
            words = "/output/%s cannot be written: %s" % (name, getattr(error, "strerror", None) or error)
            os.write(said, "\0".join([*classes, "", words]).encode("utf-8", "replace"))
            return


def _write(source, parts):
    if not _is_plain(parts):
        raise ValueError("this is no path below /output")
    directory = os.open("/output", _FOLDER)
    for part in parts[:-1]:
        try:
            os.mkdir(part, 0o755, dir_fd=directory)
        except FileExistsError:
            pass
        directory = os.open(part, _FOLDER, dir_fd=directory)
    try:
        os.unlink(parts[-1], dir_fd=directory)
    except FileNotFoundError:
        pass
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    target = os.open(parts[-1], how, 0o644, dir_fd=directory)
    with open(source, "rb") as file:
        for piece in iter(lambda: file.read(MAX_DATA), b""):
            while piece:
                piece = piece[os.write(target, piece) :]
    os.close(target)


def _is_plain(parts):
    return not any(part in ("", ".", "..") for part in parts)
