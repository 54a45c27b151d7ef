"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to the end of its one job.

The job's process: `python3 /code/main.py` as uid 1000, held at the gate until its code is there."""

import _signal as signal
import marshal
import os
import resource
import sys

from files import write_file
from kernel import become_unprivileged, make_pipes_for_code
from relay import Stream

GATE_DIR = "/code/.gate"
_GATE = GATE_DIR + "/sitecustomize.pyc"
# Where the gate finds stdin and arguments, by the frames that bring them.
INPUTS = {b"T": "/input/_stdin", b"V": "/input/_args"}
_MAX_REPORT = 4000


class Job:
    """One run. `start` makes its process from four descriptors: go, tell, stdout, stderr.

    `state` is "starting", then "ready" once it waits at the gate, or "failed".
    """

    def __init__(self, start):
        self.state = "starting"
        self.pid = None
        go, self._go = os.pipe()
        self.tell, tell = os.pipe()
        out, err = make_pipes_for_code(2)
        self.streams = [Stream(out[0], b"O"), Stream(err[0], b"E")]
        theirs = (go, tell, out[1], err[1])
        start(*theirs)
        for fd in theirs:
            os.close(fd)

    def hear(self):
        """Reads the gate's message that the interpreter waits there, or notices that it has ended.
        """
        words = os.read(self.tell, 4096).decode("utf-8", "replace").split("\0")
        self.state = "failed"
        if len(words) < 3:
            return
        self.pid, self.start_cpu_ns = int(words[0]), int(words[1])
        self.preload_errors = dict(zip(words[2:-1:2], words[3:-1:2]))
        self.state = "ready"

    def go(self, inputs):
        os.write(self._go, b"i" if inputs else b"g")

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


class Interpreter:
    """An interpreter that runs one job and is started before the job is known."""

    def __init__(self, gate, preload):
        self._gate = gate
        self._preload = preload

    def start(self, go, tell, out, err):
        """Starts the interpreter, which imports what it preloads and then waits."""
        go_fd, tell_fd = _high_descriptors()
        os.mkdir(GATE_DIR, 0o755)
        python_path = os.environ.get("PYTHONPATH")
        _write_gate(self._gate, (go_fd, tell_fd, None, GATE_DIR, python_path, tuple(self._preload)))
        if os.fork() == 0:
            try:
                null = os.open(os.devnull, os.O_RDONLY)
                env = dict(os.environ)
                env.setdefault("PYTHONUNBUFFERED", "1")
                env["PYTHONPATH"] = ":".join(filter(None, [GATE_DIR, python_path]))
                descriptors = {0: null, 1: out, 2: err, go_fd: go, tell_fd: tell}
                exec_as_code(["python3", "/code/main.py"], descriptors, env)
            except BaseException as error:
                os.write(err, repr(error).encode())
                os._exit(127)

    def release(self):
        """Removes what only the start of the interpreter needed."""
        os.unlink(_GATE)
        os.rmdir(GATE_DIR)


def _high_descriptors():
    """High numbers for go and tell that code rarely uses, but below the limit of select(2)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = min(soft, 1024) if soft > 0 else 1024
    return top - 2, top - 1


def _write_gate(gate, settings):
    """Writes a .pyc file whose one constant "settings" is these. Its form: PEP 552, marshal."""
    constants = tuple([settings if value == "settings" else value for value in gate.co_consts])
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    write_file(_GATE, magic + bytes(12) + marshal.dumps(gate.replace(co_consts=constants)))


def exec_as_code(arguments, descriptors, env):
    """Becomes a program with the rights of the code, in a session of its own, with these descriptors by number."""
    os.setsid()
    prefer_for_oom()
    become_unprivileged()
    # Other programs expect the default effect of those that Python ignores or handles.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    for target, fd in descriptors.items():
        os.dup2(fd, target)
    os.chdir("/output")
    os.execvpe(arguments[0], arguments, dict(env, HOME="/tmp"))


def exit_of(status):
    """How a process ended, for a report: its exit status or its signal."""
    signaled = os.WIFSIGNALED(status)
    return {
        "exit_status": None if signaled else os.WEXITSTATUS(status),
        "exit_signal": os.WTERMSIG(status) if signaled else None,
    }


def prefer_for_oom():
    """Makes the kernel's OOM killer choose the calling process, not PID 1."""
    try:
        write_file("/proc/self/oom_score_adj", b"1000")
    except OSError:
        pass
