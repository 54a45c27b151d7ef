"""Makes system calls by number. Reads from /input/data.json {"calls": {label: [[number on
x86-64, number on arm64], arguments, numbers or strings]}}, and
prints a JSON object of what each came to: an errno's name, "allowed", or "killed by" a signal."""

import ctypes
import errno
import json
import os
import platform

libc = ctypes.CDLL(None, use_errno=True)
column = {"x86_64": 0, "aarch64": 1}[platform.machine()]


def attempt(number, arguments):
    words = [word.encode() if isinstance(word, str) else ctypes.c_long(word) for word in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    return "allowed" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def in_child(number, arguments):
    """The result of a call in its own process: an allowed call may end the process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, attempt(number, arguments).encode())
        os._exit(0)
    os.close(write)
    told = os.read(read, 100).decode()
    os.close(read)
    status = os.waitpid(child, 0)[1]
    return "killed by %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else told


with open("/input/data.json") as file:
    calls = json.load(file)["calls"]
outcomes = {}
for label, (numbers, arguments) in calls.items():
    number = numbers[column]
    if number is not None:
        outcomes[label] = in_child(number, arguments)
print(json.dumps(outcomes))
