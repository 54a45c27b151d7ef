# Locks of single bytes: the kernel keeps each in memory that it charges to nobody.
import fcntl
import os
import struct

for _ in range(7):
    if os.fork() == 0:
        break
for number in range(500):
    file = os.open("/tmp/%d-%d" % (os.getpid(), number), os.O_RDWR | os.O_CREAT)
    for at in range(1000):
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * at, 1, 0))
