"""Runs in the mother, a zygote and the unpacker, as root, from the start of each to its end.

The user and group ids of zygotes, as the container sees them; those among them that the code of jobs has, and the
request for a job, which brings one of those."""

import struct

# What the mother asks of a zygote for one job: bytes of memory, of /dev/shm, of /tmp and /output each; the
# id of the code among the zygote's ids; the limit of pending signals; the name of its bundle of packages, or zeros.
REQUEST = struct.Struct("=QQQII32s")
# In the container of an engine without root: above 1000, the user of code in a container of its own.
_OF_ROOTLESS = (1024, 64000)
# In a zygote's range. Each running job has one of these for its code: what the kernel does not charge to a control
# group, it counts by user (watches of epoll, pages of pipes, descriptors in flight).
FIRST_OF_CODE, END_OF_CODE = 60000, 64000


class CodeIds:
    """The ids that running jobs have for their code."""

    def __init__(self):
        self._free = list(range(END_OF_CODE - 1, FIRST_OF_CODE - 1, -1))

    def take(self):
        if not self._free:
            raise OSError("too many jobs at once")
        return self._free.pop()

    def give_back(self, code_id):
        if code_id is not None:
            self._free.append(code_id)


def fit(settings, path="/proc/self/uid_map"):
    """The settings with ids that this container has: those of the host, or some of its user's own in /etc/subuid.

    Source: user_namespaces(7).
    """
    with open(path) as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    for ids in (settings["ids"], _OF_ROOTLESS):
        if _have(ranges, *ids):
            return dict(settings, ids=ids)
    raise OSError("the engine's user has fewer than 65,536 ids of its own in /etc/subuid")


def _have(ranges, first, count):
    return any(inside <= first and first + count <= inside + length for inside, _, length in ranges)
