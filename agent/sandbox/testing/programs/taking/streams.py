# Streams that nobody reads, of several processes: each has its own limit of descriptors.
import os
import socket
import sys
import time

with_sizes = sys.argv[1:] == ["sizes"]
with_resets = sys.argv[1:] == ["resets"]


def fill(count):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    held = [listener]
    if with_sizes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    for _ in range(count):
        client = socket.socket()
        if with_sizes:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                client.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
        client.connect(listener.getsockname())
        server = listener.accept()[0]
        for one in (client, server):
            one.setblocking(False)
            try:
                for _ in range(16):
                    one.send(bytes(1 << 18))
            except BlockingIOError:
                pass
        if with_resets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        held += [client, server]
    time.sleep(2)


children = []
for _ in range(12):
    child = os.fork()
    if child == 0:
        try:
            fill(480)
        finally:
            os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
