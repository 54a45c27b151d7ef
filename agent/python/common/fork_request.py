"""Runs in the mother and a zygote, as root, from the start of each to its end.

What the mother asks of a zygote for one job: bytes of memory, of /dev/shm, of /tmp and /output each; the
id of the code among the zygote's ids; the limit of pending signals; the name of its bundle of packages, or zeros."""

import struct

REQUEST = struct.Struct("=QQQII32s")
