"""The job's process: `python3 /code/main.py` as uid 1000, held at the gate until its code is there."""

import os
import resource
import signal

from privileges import become_unprivileged
from relay import Stream

GATE_DIR = "/code/.gate"
_GATE = GATE_DIR + "/sitecustomize.py"
_MAX_REPORT = 4000


class Job:
    """Forked at once, before anything of the job is known.

    `state` is "starting", then "ready" once it waits at the gate, or "failed".
    """

    def __init__(self, gate_source, preload):
        self.state = "starting"
        go, self._go = os.pipe()
        self.tell, tell = os.pipe()
        out, err = os.pipe(), os.pipe()
        self.streams = [Stream(out[0], b"O"), Stream(err[0], b"E")]
        go_fd, tell_fd = _high_descriptors()
        _write_gate(
            gate_source,
            go_fd=go_fd,
            tell_fd=tell_fd,
            gate_dir=GATE_DIR,
            python_path=os.environ.get("PYTHONPATH"),
            preload=preload,
        )
        self.pid = os.fork()
        if self.pid == 0:
            nothing = os.open(os.devnull, os.O_RDONLY)
            try:
                _exec_job({0: nothing, 1: out[1], 2: err[1], go_fd: go, tell_fd: tell})
            except BaseException as error:
                os.write(err[1], repr(error).encode())
                os._exit(127)
        for fd in (go, tell, out[1], err[1]):
            os.close(fd)

    def hear(self):
        """Reads what the gate says once the interpreter waits there, or finds that it has ended."""
        words = os.read(self.tell, 4096).decode("utf-8", "replace").split("\0")
        self.state = "failed"
        if len(words) < 2:
            return
        self.start_cpu_ns = int(words[0])
        self.preload_errors = dict(zip(words[1:-1:2], words[2:-1:2]))
        os.unlink(_GATE)
        os.rmdir(GATE_DIR)
        self.state = "ready"

    def go(self):
        os.write(self._go, b"g")
        os.close(self._go)

    def read_exception(self):
        """The last exception that the interpreter reported, if it reported one."""
        os.set_blocking(self.tell, False)
        try:
            told = os.read(self.tell, 64 * 1024)
        except BlockingIOError:
            told = b""
        exception = None
        while len(told) > 2:
            end = 2 + int.from_bytes(told[:2], "big")
            if end > 2 + _MAX_REPORT:
                break  # not the gate's: the code found the descriptor
            names, _, message = told[2:end].decode("utf-8", "replace").partition("\0\0")
            exception = {"mro": names.split("\0"), "message": message}
            told = told[end:]
        return exception


def write_file(path, data, mode="wb"):
    with open(path, mode) as file:
        file.write(data)


def _high_descriptors():
    """Two numbers that code does not meet, below what select(2) can watch."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = min(soft, 1024) if soft > 0 else 1024
    return top - 2, top - 1


def _write_gate(source, **constants):
    os.mkdir(GATE_DIR, 0o755)
    head = "; ".join("%s = %r" % constant for constant in constants.items())
    write_file(_GATE, (head + "\n" + source).encode())


def _exec_job(descriptors):
    os.setsid()
    _prefer_for_oom()
    become_unprivileged()
    for signal_number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(signal_number, signal.SIG_DFL)
    for target, fd in descriptors.items():
        os.dup2(fd, target)
    env = dict(os.environ)
    env.setdefault("PYTHONUNBUFFERED", "1")
    env["HOME"] = "/tmp"
    env["PYTHONPATH"] = ":".join(filter(None, [GATE_DIR, env.get("PYTHONPATH")]))
    os.chdir("/output")
    os.execvpe("python3", ["python3", "/code/main.py"], env)


def _prefer_for_oom():
    """Has the kernel's OOM killer take the job rather than PID 1."""
    try:
        write_file("/proc/self/oom_score_adj", b"1000")
    except OSError:
        pass
