"""Runs in PID 1 of a sandbox, as root of the sandbox, from an order to run a program to the end of its job.

Runs a program of the image in place of Python code, after its compiler if there is one."""

import errno
import os
import time

from job import INPUTS, Job, close_all, exec_as_code, exit_of
from kernel import make_pipes_for_code
from link import MAX_DATA
from relay import Stream, whole_length

_MAX_SAID = 16 * 1024


class Program:
    """One run of a program, with the interface of job.Job. `stream` is the class of its streams."""

    state = "ready"
    told = calls = None
    to_read, end = Job.to_read, Job.end

    def __init__(self, arguments, stream, env):
        self._arguments, self._env = arguments, env
        self.start_cpu_ns = 0
        out, err = make_pipes_for_code(2)
        self.streams = [stream(out[0], b"O"), stream(err[0], b"E")]
        self._theirs = (out[1], err[1])

    def go(self, inputs, _orders=None):
        self.pid = os.fork()
        if self.pid == 0:
            try:
                stdin = os.open(INPUTS[b"T"] if INPUTS[b"T"] in inputs else os.devnull, os.O_RDONLY)
                descriptors = dict(enumerate((stdin, *self._theirs)))
                exec_as_code(self._arguments, descriptors, self._env)
            except OSError as error:
                is_missing = error.errno == errno.ENOENT
                why = "the image has no such program" if is_missing else error.strerror
                said = "airlock: %s: %s\n" % (os.fsdecode(self._arguments[0]), why)
                os.write(2, said.encode("utf-8", "replace"))
                os._exit(127 if is_missing else 126)
            finally:
                os._exit(126)
        close_all(self._theirs)
        self._theirs = ()

    def close(self):
        close_all((*self._theirs, *(stream.fd for stream in self.streams)))

    def hear_last(self, outbox):
        return {"exception": None}


class Kept(Stream):
    """Keeps the beginning of a stream."""

    def read(self, outbox):
        try:
            chunk = os.read(self.fd, MAX_DATA)
        except BlockingIOError:
            return False
        self.open = bool(chunk)
        self.early = (self.early + chunk)[:_MAX_SAID]
        return self.open


def prepare(supervisor):
    """Ends the interpreter and runs the compiler. Returns how the job ended, or None if the program can run."""
    compile_ms, count, *arguments = supervisor.program
    compiler, command = arguments[: int(count)], arguments[int(count) :]
    supervisor.clear()
    if compiler:
        ending = _compile(supervisor, compiler, int(compile_ms))
        if ending is not None:
            return ending
    supervisor.job = Program(command + _read_arguments(supervisor.inputs), supervisor.stream, supervisor.env)
    return None


def _compile(supervisor, compiler, limit_ms):
    job = supervisor.job = Program(compiler, Kept, supervisor.env)
    began = time.monotonic()
    job.go(())
    supervisor.tell_start()
    ending = supervisor.wait_for_end(began + limit_ms / 1000)
    ended, status = supervisor.exit or (time.monotonic(), 9)
    supervisor.settle()
    for stream in job.streams:
        stream.drain(None)
    said = (stream.early for stream in job.streams)
    stdout, stderr = (text[: whole_length(text)].decode("utf-8", "replace") for text in said)
    report = {
        **exit_of(status),
        "timed_out": ending == "timeout",
        "stdout": stdout,
        "stderr": stderr,
        "wall_ms": (ended - began) * 1000,
    }
    supervisor.outbox.put_json(b"Y", report)
    if ending == "exited" and status == 0:
        supervisor.clear()
        return None
    return "exited" if ending == "timeout" else ending


def _read_arguments(inputs):
    if INPUTS[b"V"] not in inputs:
        return []
    with open(INPUTS[b"V"], "rb") as file:
        return file.read().split(b"\0")[:-1]
