"""Runs in the mother and a zygote, as root, from the start of each to its end.

What the mother asks of a zygote for one job: bytes of memory, of /dev/shm, of /tmp and /output each; the
zygote's id that is the code's; most inotify instances, inotify watches and pending signals; and the name
of its bundle of packages, or zeros."""

import struct

REQUEST = struct.Struct("=QQQIIII32s")
