# Each trigger costs the kernel a wait when its descriptor is closed, also that of a killed process.
import os
import time

for _ in range(4):
    if os.fork() == 0:
        held = []
        try:
            for _ in range(2000):
                held.append(os.open("/proc/pressure/memory", os.O_RDWR))
                os.write(held[-1], b"some 150000 2000000\0")
        except OSError as error:
            # Whole: print writes in parts, and four processes do.
            os.write(1, ("%d %s\n" % (len(held), error.strerror)).encode())
        time.sleep(1)
time.sleep(1)
