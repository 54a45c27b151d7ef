"""Runs in PID 1 and the installer, as root, from an order to install packages to the end of pip or of the job.

Installs packages with pip for a job (Packages), before its code arrives.

Comes to PID 1 with the order, so that jobs without packages do not load it.
"""

import errno
import json
import os
import select
import shutil
import signal
import socket
import stat
import time

from link import MAX_DATA

_ROOT = "/packages"
_WORK = _ROOT + "/.pip"
_REQUIREMENTS = "/input/_requirements.txt"
_OTHERS = ("/code", "/input", "/output", "/tmp", "/dev/shm")
_MAX_OUTPUT = 16 * 1024
# How often what pip has written is measured: at most a fifth of the time.
_LOOK_S, _LOOKS_TAKE = 0.2, 4
_BLOCK = 4096
# Nobody imports the files of tests, and they are half of many packages.
_COMPILE = ["-m", "compileall", "-qq", "-j", "2", "-x", "/tests?/", _ROOT]
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
WINDOW = 256 * 1024
_MAX_CONNECTIONS = 16


class Packages:
    """One installation into /packages, which the code can only read, by pip or from files that the agent cached.

    The order is JSON: `runner` (the source of run_pip.py), `keep`, `max_bytes` (what the packages may take, or null),
    and `pip_env`, which is null if the packages themselves follow. /input/_requirements.txt is there already.

    to the supervisor    A head of a file below /packages (JSON)  D its data  Z no more files: install
    to the agent         A, D the installed files, if they are to be cached
                         P the end (JSON): exit_status, exit_signal, out_of_memory, too_large, output
    both ways            the frames of the tunnel
    """

    def __init__(self, outbox, order, count_oom_kills):
        self.pid = None  # pip's, while it runs
        self._outbox = outbox
        self._order = order
        self._count_oom_kills = count_oom_kills
        self._oom_kills = count_oom_kills()
        self._tunnel = self._output_fd = self._file = None
        self._output = b""
        self._too_large = False
        os.umask(0o022)
        if order["pip_env"] is not None:
            os.mkdir(_WORK, 0o700)

    def to_poll(self):
        """What to poll for: (descriptor, events, handler). A handler may be called after the end.
        """
        if self._output_fd is not None:
            yield self._output_fd, select.POLLIN, self._read_output
        if self._tunnel is not None:
            yield from self._tunnel.to_poll()

    def take(self, kind, payload):
        if kind in b"dwex":
            if self._tunnel is not None:
                self._tunnel.take(kind, payload)
            return
        if not self._output:
            try:
                self._take_file(kind, payload)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._output = ("ERROR: %s\n" % error).encode()
        if kind == b"Z":
            if self._output:
                self._tell(1 << 8)
            elif self._order["pip_env"] is None:
                self._tell(0)
            else:
                self._start_pip()

    def _take_file(self, kind, payload):
        if kind == b"A":
            self._open(json.loads(payload))
        elif kind == b"D":
            self._file.write(payload)
        elif kind == b"Z":
            self._open(None)

    def ended(self, status):
        """Handles the end of pip: kills its remaining processes, then reports to the agent."""
        self.pid = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._tunnel.close()
        self._tunnel = None
        _end_strangers(self._known)
        while self._read_output():
            pass
        shutil.rmtree(_WORK)
        strays = _strays()
        if status == 0 and strays:
            status = 1 << 8
            said = "ERROR: a package put files outside %s: %s\n" % (_ROOT, ", ".join(strays[:5]))
            self._output = said.encode("utf-8", "replace")
        self._measure(1)
        if self._too_large:
            status = 1 << 8
        if status == 0:
            self._finish()
        self._tell(status)

    def _finish(self):
        """Compiles the packages, and sends the other files meanwhile. It blocks, because there is nothing else to do."""
        compiler = None
        if "PIP_NO_COMPILE" not in self._order["pip_env"]:
            compiler = os.fork()
            if compiler == 0:
                try:
                    _exec_python(_COMPILE, os.open(os.devnull, os.O_WRONLY), os.environ)
                finally:
                    os._exit(127)
        if self._order["keep"]:
            self._send_files(False)
        if compiler is not None:
            os.waitpid(compiler, 0)
            if self._order["keep"]:
                self._send_files(True)

    def _start_pip(self):
        self._known = set(_processes_of_root())
        self._tunnel = Tunnel(self._outbox)
        self._output_fd, output = os.pipe()
        os.set_blocking(self._output_fd, False)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _exec_pip(self._order, "http://127.0.0.1:%d" % self._tunnel.port, output)
            except BaseException as error:
                os.write(output, ("ERROR: %r\n" % error).encode())
                os._exit(127)
        os.close(output)
        if self._order["max_bytes"] is not None:
            signal.signal(signal.SIGALRM, lambda *_: self._limit())
            self._limit()

    def _limit(self):
        """Ends pip where it has written too much, and looks again after a while. What it has downloaded is
        there beside what it has unpacked, so it may use twice as much as the packages."""
        began = time.monotonic()
        self._measure(2)
        if self._too_large and self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
        elif self.pid is not None:
            took = time.monotonic() - began
            signal.setitimer(signal.ITIMER_REAL, max(_LOOK_S, _LOOKS_TAKE * took))

    def _measure(self, times):
        if self._order["max_bytes"] is not None and not self._too_large:
            self._too_large = _bytes_used() > times * self._order["max_bytes"]

    def _read_output(self):
        if self._output_fd is None:
            return False
        try:
            chunk = os.read(self._output_fd, MAX_DATA)
        except BlockingIOError:
            return False
        self._output = (self._output + chunk)[-_MAX_OUTPUT:]
        if not chunk:
            os.close(self._output_fd)
            self._output_fd = None
        return bool(chunk)

    def _tell(self, status):
        from job import exit_of  # the installer has no such module

        end = {
            **exit_of(status),
            "out_of_memory": self._count_oom_kills() > self._oom_kills,
            "too_large": self._too_large,
            "output": self._output.decode("utf-8", "replace"),
        }
        self._outbox.put_json(b"P", end)

    def _open(self, head):
        """Completes the current file and opens the next one."""
        if self._file is not None:
            self._file.close()
            os.utime(self._file.name, (self._mtime, self._mtime))
        self._file = None
        if head is None:
            return
        parts = head["name"].split("/")
        if not all(parts) or ".." in parts:
            raise ValueError("not a name below " + _ROOT)
        path = os.path.join(_ROOT, *parts)
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        self._file = open(path, "xb")
        os.chmod(path, 0o755 if head["executable"] else 0o644)
        self._mtime = head["mtime"]

    def _send_files(self, compiled):
        """Sends either the compiled files or all others. The end of the link ends this process."""
        os.set_blocking(self._outbox.fd, True)
        for folder, folders, names in os.walk(_ROOT):
            folders.sort()
            if (os.path.basename(folder) == "__pycache__") != compiled:
                continue
            for path in (os.path.join(folder, name) for name in sorted(names)):
                found = os.lstat(path)
                if stat.S_ISREG(found.st_mode):
                    self._send_file(path, found)
        os.set_blocking(self._outbox.fd, False)

    def _send_file(self, path, found):
        head = {
            "name": os.path.relpath(path, _ROOT),
            "executable": bool(found.st_mode & stat.S_IXUSR),
            "mtime": int(found.st_mtime),  # in whole seconds, as bytecode knows its source's
        }
        self._outbox.put_json(b"A", head)
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(MAX_DATA), b""):
                self._outbox.put(b"D", piece)
                while self._outbox.full:
                    self._outbox.write()
        while not self._outbox.empty:
            self._outbox.write()


class Tunnel:
    """The tunnel from pip to the agent: a proxy's port on loopback, whose connections travel over the link.
    It is closed before the code runs.

    both ways       d data  w window: bytes passed on, as 4 bytes  e end of what this side says
                    x the connection is over
    to the agent    o opened
    Each payload begins with the number of the connection, 4 bytes. A side sends at most WINDOW bytes more than
    the other has passed on.
    """

    def __init__(self, outbox):
        self._outbox = outbox
        self._connections = {}
        self._opened = 0
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]

    def to_poll(self):
        """What to poll for: (descriptor, events, handler)."""
        if len(self._connections) < _MAX_CONNECTIONS:
            yield self._listener.fileno(), select.POLLIN, self._accept
        for connection in list(self._connections.values()):
            events = connection.events(self._outbox)
            if events:
                handler = lambda connection=connection: self._serve(connection)  # noqa: E731
                yield connection.fileno(), events, handler

    def take(self, kind, payload):
        """Handles a frame of the agent. A frame for a closed connection crossed its end and is
        ignored.
        """
        connection = self._connections.get(payload[:4])
        if connection is None:
            return
        if kind == b"x" and connection.pending and not connection.hears:
            connection.speaks = False  # what it sent before is passed on first
        elif kind == b"x":
            self._forget(connection)
        else:
            connection.take(kind, payload[4:])

    def close(self):
        self._listener.close()
        for connection in list(self._connections.values()):
            self._forget(connection)

    def _accept(self):
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            return
        self._opened += 1
        number = self._opened.to_bytes(4, "big")
        self._connections[number] = _Connection(number, accepted)
        self._outbox.put(b"o", number)

    def _serve(self, connection):
        if connection.number not in self._connections:
            return
        try:
            connection.serve(self._outbox)
        except OSError:
            self._outbox.put(b"x", connection.number)
            connection.hears = connection.speaks = False
            connection.pending.clear()
        if connection.over:
            self._forget(connection)

    def _forget(self, connection):
        del self._connections[connection.number]
        connection.close()


class _Connection:
    def __init__(self, number, accepted):
        self.number = number
        self.hears = self.speaks = True  # the agent has more for it; it may have more for the agent
        self.pending = bytearray()  # from the agent, not yet passed on
        self._credit = WINDOW
        self._socket = accepted
        self._ended = False
        accepted.setblocking(False)
        self.fileno, self.close = accepted.fileno, accepted.close

    @property
    def over(self):
        return not (self.speaks or self.hears or self.pending)

    def events(self, outbox):
        may_read = self.speaks and self._credit > 0 and not outbox.full
        may_write = self.pending or not (self.hears or self._ended)
        return (select.POLLIN if may_read else 0) | (select.POLLOUT if may_write else 0)

    def take(self, kind, data):
        if kind == b"d":
            self.pending += data
        elif kind == b"w":
            self._credit += int.from_bytes(data, "big")
        elif kind == b"e":
            self.hears = False

    def serve(self, outbox):
        if self.pending:
            self._write(outbox)
        if not (self.hears or self.pending or self._ended):
            self._ended = True
            self._socket.shutdown(socket.SHUT_WR)
        if self.speaks and self._credit > 0:
            self._read(outbox)

    def _write(self, outbox):
        try:
            sent = self._socket.send(self.pending[:MAX_DATA])
        except BlockingIOError:
            return
        del self.pending[:sent]
        outbox.put(b"w", self.number + sent.to_bytes(4, "big"))

    def _read(self, outbox):
        try:
            chunk = self._socket.recv(min(self._credit, MAX_DATA))
        except BlockingIOError:
            return
        self._credit -= len(chunk)
        self.speaks = bool(chunk)
        outbox.put(b"d" if chunk else b"e", self.number + chunk)


def _exec_pip(order, proxy, output):
    os.chdir(_WORK)
    env = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES}
    env.update(order["pip_env"], HOME=_WORK, TMPDIR=_WORK, PIP_PROXY=proxy)
    env.update(http_proxy=proxy, https_proxy=proxy, PYTHONUSERBASE=_ROOT)
    options = ["--no-compile", "--only-binary", ":all:", "--requirement", _REQUIREMENTS]
    _exec_python(["-c", order["runner"], "install", *options], output, env)


def _exec_python(arguments, output, env):
    """Becomes Python, as root without capabilities: exec drops them because the bounding set is empty."""
    from job import prefer_for_oom  # see above

    os.setsid()
    prefer_for_oom()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, fd in ((0, nothing), (1, output), (2, output)):
        os.dup2(fd, target)
    os.execvpe("python3", ["python3", "-I", *arguments], env)


def _bytes_used():
    """The size of all files. One takes a block even if it is empty."""
    total = 0
    for folder, folders, names in os.walk(_ROOT):
        for name in folders + names:
            try:
                total += max(_BLOCK, os.lstat(os.path.join(folder, name)).st_size)
            except FileNotFoundError:
                pass
    return total


def _processes_of_root():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat("/proc/" + name).st_uid == 0:
                yield int(name)
        except FileNotFoundError:
            pass


def _strays():
    """Files that pip wrote outside the folder, for packages whose command names contain a path."""
    found = []
    for folder in _OTHERS:
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        found += [path for path in paths if path != _REQUIREMENTS and os.lstat(path).st_uid == 0]
    return found


def _end_strangers(known):
    """Kills processes that a tricked pip may have started; orphans become children of PID 1."""
    while True:
        strangers = [pid for pid in _processes_of_root() if pid not in known]
        if not strangers:
            return
        for pid in strangers:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
