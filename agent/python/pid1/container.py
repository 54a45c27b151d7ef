"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to its end.

PID 1 of a container: how it begins, and how it starts an interpreter."""

import marshal
import os
import resource
import sys

from files import write_file
from job import exec_as_code
from kernel import harden_supervisor
from supervisor import Supervisor
from usage import count_oom_kills

GATE_DIR = "/code/.gate"
_GATE = GATE_DIR + "/sitecustomize.pyc"


class Interpreter:
    """An interpreter that runs one job and is started before the job is known."""

    def __init__(self, codes, preload):
        self._codes, self._preload = codes, preload

    @property
    def cells(self):
        return self._codes["cells"]

    @property
    def serve(self):
        return self._codes["serve"]

    def take_modules(self, payload):
        self._codes.update(marshal.loads(payload))

    def start(self, go, tell, out, err, groups=()):
        """Starts the interpreter, which imports what it preloads and then waits."""
        go_fd, tell_fd = _high_descriptors()
        os.mkdir(GATE_DIR, 0o755)
        python_path = os.environ.get("PYTHONPATH")
        _write_gate(marshal.loads(self._codes["gate"]), (go_fd, tell_fd, None, GATE_DIR, python_path, tuple(self._preload)))
        try:
            pid = os.fork()
        except OSError:
            self.release()
            raise
        if pid == 0:
            try:
                null = os.open(os.devnull, os.O_RDONLY)
                env = dict(os.environ)
                env.setdefault("PYTHONUNBUFFERED", "1")
                env["PYTHONPATH"] = ":".join(filter(None, [GATE_DIR, python_path]))
                descriptors = {0: null, 1: out, 2: err, go_fd: go, tell_fd: tell}
                exec_as_code(["python3", "/code/main.py"], descriptors, env, groups)
            except BaseException as error:
                os.write(err, repr(error).encode())
                os._exit(127)

    def release(self):
        """Removes what only the start of the interpreter needed."""
        os.unlink(_GATE)
        os.rmdir(GATE_DIR)

    def begin_packages(self, outbox, payload):
        import json

        order = json.loads(payload)
        for name, text in order["modules"].items():
            load(name, text)  # noqa: F821  its loader gives it this
        return sys.modules["packages"].Packages(outbox, order, count_oom_kills)


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


def main(codes, preload, compiled):
    """Runs until the job is over. It first sends the bytecode that it compiled."""
    if os.getpid() != 1:
        raise SystemExit("not PID 1: its signals to every process would reach the host's")
    harden_supervisor()
    supervisor = Supervisor(Interpreter(codes, preload))
    while compiled:
        supervisor.outbox.put(b"B", compiled.pop(0))
    supervisor.run()
    # A normal exit of the interpreter would take as long as a short job.
    os._exit(0)
