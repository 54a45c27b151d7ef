"""What the mother asks of a zygote for one job: bytes of memory, of /dev/shm, of /tmp and /output each,
and the name of its set of packages, or zeros."""

import struct

REQUEST = struct.Struct("=QQQ32s")
