"""Sets the rights of processes inside the sandbox. Sources: capabilities(7), prctl(2), capset(2).
"""

import _ctypes as ctypes  # the module around it takes a third as long as the interpreter's own start
import os
import sys

from files import read_lines

CODE_UID = 1000

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_LINUX_CAPABILITY_VERSION_3 = 0x20080522


class _Int(ctypes._SimpleCData):
    _type_ = "i"


class _Word(ctypes._SimpleCData):
    _type_ = "L"


class _Function(ctypes.CFuncPtr):
    _flags_ = ctypes.FUNCFLAG_CDECL | ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


def _function(name):
    return _Function(ctypes.dlsym(ctypes.dlopen(None, 0), name))


_call_prctl, _call_capset = _function("prctl"), _function("capset")
_ZERO = _Word(0)


def harden_supervisor():
    """Leaves PID 1 what drop_rights does, and no descriptors beyond the standard ones: they can only be
    the engine's, left open by mistake.
    """
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            try:
                os.close(fd)
            except OSError:
                pass
    drop_rights()


def drop_rights():
    """Leaves PID 1 the capabilities to change its user and to signal other users; its children get
    none.
    """
    close_memory()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    keep_capabilities((), (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))


def keep_capabilities(bounding, kept):
    """Leaves the calling process the `kept` capabilities, and what it executes the `bounding` ones."""
    for capability in _bounding_set():
        if capability not in bounding:
            _prctl(_PR_CAPBSET_DROP, capability)
    _set_capabilities(sum(1 << capability for capability in kept))


def _bounding_set():
    for line in read_lines("/proc/self/status"):
        name, _, mask = line.partition(":")
        if name == "CapBnd":
            return [capability for capability in range(64) if int(mask, 16) >> capability & 1]
    raise OSError("/proc/self/status has no CapBnd")


def open_memory():
    """Gives the calling process its /proc/self back, which a change of user without exec closes."""
    _prctl(_PR_SET_DUMPABLE, 1)


def close_memory():
    """Closes the calling process's memory to other processes; a change of user undoes this."""
    _prctl(_PR_SET_DUMPABLE, 0)


def make_pipes_for_code(count):
    """Makes pipes that belong to uid 1000, so that the code can open its streams by name, such as /dev/stderr."""
    os.seteuid(CODE_UID)
    try:
        return [os.pipe() for _ in range(count)]
    finally:
        os.seteuid(0)
        close_memory()


def become_unprivileged():
    """Turns the calling process irreversibly into uid 1000 without groups or capabilities."""
    os.setgroups([])
    os.setresgid(CODE_UID, CODE_UID, CODE_UID)
    os.setresuid(CODE_UID, CODE_UID, CODE_UID)
    _set_capabilities(0)


def _prctl(option, value):
    _check(_call_prctl(option, _Word(value), _ZERO, _ZERO, _ZERO))


def _set_capabilities(mask):
    """Sets effective and permitted to `mask`, and inheritable (and thereby ambient) to empty."""
    low, high = mask & 0xFFFFFFFF, mask >> 32
    _check(_call_capset(_words(_LINUX_CAPABILITY_VERSION_3, 0), _words(low, low, 0, high, high, 0)))


def _words(*values):
    """A read-only array of 32-bit words."""
    return b"".join(value.to_bytes(4, sys.byteorder) for value in values)


def _check(result):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
