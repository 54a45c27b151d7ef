"""What the mother asks of a zygote for one job: bytes of memory, of /dev/shm, of /tmp and /output each."""

import struct

REQUEST = struct.Struct("=QQQ")
