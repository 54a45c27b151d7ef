"""Runs in the collector, as uid 1000 or with its rights to files, from the end of the code to the end of its job.

Sends the files in /output after all processes of the code have ended; or those of a call while processes of the session
may change them, with the files that it fetches. Writes the files that a call brings."""

import itertools
import os
import stat
import time

from link import MAX_DATA, frame_head, to_json

_MAX_SCAN = 20_000
_MAX_DEPTH = 32
_MAX_NAME = 1024
_MAX_EXAMPLES = 5
_RESERVED = {"_code.py", "_input.json"}
_FORBIDDEN = set(range(0x20)) | set(range(0x7F, 0xA0)) | {ord("\\"), 0x61C, 0x200E, 0x200F}
_FORBIDDEN |= set(range(0x2028, 0x202F)) | set(range(0x2066, 0x206A))

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A folder on the way to a file. Without O_PATH, older versions of gVisor follow a link.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FETCHED = "_fetched/"
_CLOCK_REALTIME_COARSE = 5
# A tick is 10 ms at most.
_NAP_S, _MOST_NAPS = 0.0005, 40
_MAY_FETCH = ("output", "tmp", "input")


class Collector:
    """Walks /output and writes frames to a blocking descriptor."""

    too_many, too_deep = "too_many_files", "too_deep"

    def __init__(self, fd, max_bytes, max_files, max_result_bytes):
        self._fd = fd
        self._bytes_left = max_bytes
        self._files_left = max_files
        self._max_result_bytes = max_result_bytes
        self._scans_left = _MAX_SCAN
        self._skipped = {}
        self._result_problem = None

    def run(self):
        root = self._open(os.open("/", DIRECTORY), "output", DIRECTORY)
        if root is None:
            self._skip("unreadable", "/output")
        else:
            self._send_result(root)
            self._walk(root, "", 1)
        self._summarize()

    def _summarize(self):
        summary = {
            "result_problem": self._result_problem,
            "skipped": [
                {"reason": reason, "count": count, "names": names}
                for reason, (count, names) in self._skipped.items()
            ],
        }
        self._frame(b"Z", to_json(summary))

    def _send_result(self, root):
        """Sends result.json before the other files; if it cannot be the result, says why."""
        try:
            found = os.stat("result.json", dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            return
        problem = not_plain(found)
        if problem is None and found.st_size > self._max_result_bytes:
            problem = "too_many_bytes"
        if problem is None and not self._send(root, "result.json", "result.json", found, result=True):
            problem = "unreadable"
        self._result_problem = problem

    def _walk(self, directory, prefix, depth):
        self._open_up(directory)
        with os.scandir(directory) as entries:
            names = [entry.name for entry in itertools.islice(entries, self._scans_left + 1)]
        if len(names) > self._scans_left:
            self._skip(self.too_many, prefix + names.pop())
        self._scans_left -= len(names)
        for name in sorted(names):
            path = prefix + name
            if path == "result.json" and self._result_problem != "too_many_bytes":
                continue
            found = self._look_at(directory, name)
            if found is None:
                continue
            if stat.S_ISDIR(found.st_mode):
                self._descend(directory, name, path, depth)
            else:
                self._consider(directory, name, path, found)

    def _open_up(self, directory):
        try:
            os.fchmod(directory, 0o700)
        except PermissionError:
            pass

    def _look_at(self, directory, name):
        """What is there, or None."""
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def _descend(self, directory, name, path, depth):
        problem = bad_name(path) or (self.too_deep if depth == _MAX_DEPTH else None)
        child = None if problem else self._open(directory, name, DIRECTORY)
        if child is None:
            self._skip(problem or "unreadable", path + "/")
            return
        try:
            self._walk(child, path + "/", depth + 1)
        finally:
            os.close(child)

    def _consider(self, directory, name, path, found):
        problem = not_plain(found) or bad_name(path)
        if problem is None and self._files_left == 0:
            problem = "too_many_files"
        if problem is None and found.st_size > self._bytes_left:
            problem = "too_many_bytes"
        if problem is None and not self._send(directory, name, path, found, result=False):
            problem = "unreadable"
        if problem:
            self._skip(problem, path)
        else:
            self._files_left -= 1
            self._bytes_left -= found.st_size

    def _send(self, directory, name, path, found, result):
        file = self._open(directory, name, FILE)
        if file is None:
            return False
        try:
            head = {"name": path, "size": found.st_size, "result": result}
            self._frame(b"A", to_json(head))
            left = found.st_size
            while left:
                chunk = os.read(file, min(left, MAX_DATA))
                if not chunk:
                    chunk = bytes(min(left, MAX_DATA))  # something shortens it meanwhile, and its size is told already
                self._frame(b"D", chunk)
                left -= len(chunk)
        finally:
            os.close(file)
        return True

    def _open(self, directory, name, flags):
        """Opens an entry that the code may have made unreadable; uid 1000 owns it and can change
        its mode.
        """
        try:
            return os.open(name, flags, dir_fd=directory)
        except PermissionError:
            pass
        try:
            os.chmod(name, 0o700, dir_fd=directory)
            return os.open(name, flags, dir_fd=directory)
        except OSError:
            return None

    def _skip(self, reason, path):
        count, names = self._skipped.get(reason, (0, []))
        if len(names) < _MAX_EXAMPLES:
            names.append(ascii(path)[1:-1][:200])
        self._skipped[reason] = (count + 1, names)

    def _frame(self, kind, payload):
        data = memoryview(frame_head(kind, len(payload)) + payload)
        while data:
            data = data[os.write(self._fd, data) :]


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


def not_plain(found):
    if not stat.S_ISREG(found.st_mode):
        return "not_a_regular_file"
    return "hard_link" if found.st_nlink > 1 else None


def bad_name(path):
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "unsafe_name"
    if path in _RESERVED or not _FORBIDDEN.isdisjoint(map(ord, path)):
        return "unsafe_name"
    return "name_too_long" if size > _MAX_NAME else None
