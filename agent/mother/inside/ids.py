"""The user and group ids of zygotes, as the container sees them."""

# In the container of an engine without root: above 1000, the user of code in a container of its own.
_OF_ROOTLESS = (1024, 64000)


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
