"""Runs in the collector, as uid 1000, from the end of the code to the end of its sandbox.

Sends the files in /output after all processes of the code have ended. session.py has the same for a call."""

import itertools
import os
import stat

from link import MAX_PAYLOAD, frame_head, to_json

_MAX_SCAN = 20_000
_MAX_DEPTH = 32
_MAX_NAME = 1024
_MAX_EXAMPLES = 5
_RESERVED = {"_code.py", "_input.json"}
_FORBIDDEN = set(range(0x20)) | set(range(0x7F, 0xA0)) | {ord("\\"), 0x61C, 0x200E, 0x200F}
_FORBIDDEN |= set(range(0x2028, 0x202F)) | set(range(0x2066, 0x206A))

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Collector:
    """Walks /output and writes frames to a blocking descriptor."""

    too_many, too_deep = "too_many_files", "too_deep"
    piece_bytes = MAX_PAYLOAD

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
            if not_plain(os.fstat(file)):
                return False
            self._frame(b"A", to_json({"name": path, "size": found.st_size, "result": result}))
            left = found.st_size
            while left:
                size = min(left, self.piece_bytes)
                chunk = os.read(file, size) or self._instead(path, size)
                self._frame(b"D", chunk)
                if not chunk:  # which drops the file
                    break
                left -= len(chunk)
        finally:
            os.close(file)
        return True

    def _instead(self, path, size):
        """Stands for bytes that are missing: something shortens the file meanwhile, and its size is told already."""
        return bytes(size)

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
