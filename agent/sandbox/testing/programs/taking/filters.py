# Compiled filters, as many as the host allows all of its processes together. Each thread adds long ones to its chain;
# a listener keeps the chain of a thread that has ended. Sockets have filters of their own.
import ctypes
import os
import socket
import struct
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVS, SET_SECCOMP, SET_MODE_FILTER, NEW_LISTENER = 38, 22, 1, 8
SECCOMP = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
SO_ATTACH_FILTER = 26
LOAD, RETURN_ALLOW = (0x20, 0, 0, 0), (0x06, 0, 0, 0x7FFF0000)


def program(count):
    code = b"".join(struct.pack("=HBBI", *line) for line in [LOAD] * (count - 1) + [RETURN_ALLOW])
    buffer = ctypes.create_string_buffer(code, len(code))
    return buffer, struct.pack("HxxxxxxP", count, ctypes.addressof(buffer))


kept, header = program(4096 if sys.argv[1] == "calls" else 1000)
done = 0


def check(result):
    global done
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    done += 1


def add_chain():
    libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        for _ in range(6):
            check(libc.prctl(SET_SECCOMP, 2, header, 0, 0))
        check(libc.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER, header))
    except OSError as error:
        failures.append(error)


failures = []
held = []
while not failures and len(held) < 1000:
    if sys.argv[1] == "calls":
        thread = threading.Thread(target=add_chain)
        thread.start()
        thread.join()
        held.append(None)
        continue
    try:
        held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        held[-1].setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, header)
        done += 1
    except OSError as error:
        failures.append(error)
print(done, failures and failures[0].strerror)
time.sleep(0.5)
