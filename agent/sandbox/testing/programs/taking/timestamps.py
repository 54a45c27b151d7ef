# A copy of each datagram waits in the error queue of its sender, asked for by ancillary data that no filter sees.
import socket
import struct
import time

SO_TIMESTAMPING, TX_SCHED, TX_SOFTWARE, SOFTWARE = 37, 1 << 8, 1 << 1, 1 << 4
held = []
try:
    for _ in range(4000):
        sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        held.append(sender)
        sender.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SCHED | TX_SOFTWARE | SOFTWARE)
        wanted = (socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("=I", TX_SCHED | TX_SOFTWARE))
        for _ in range(4):
            sender.sendmsg([bytes(60_000)], [wanted], 0, ("::1", 9))
except OSError as error:
    print(len(held), error.strerror)
time.sleep(0.5)
