# Datagrams that nobody reads.
import socket
import time

held = []
try:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(3000):
        held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        held[-1].bind(("127.0.0.1", 0))
        for _ in range(3):
            sender.sendto(bytes(60_000), held[-1].getsockname())
except OSError as error:
    print(len(held), error.strerror)
time.sleep(0.5)
