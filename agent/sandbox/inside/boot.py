# The command of PID 1: runs the program that comes first on stdin, after its size in 4 bytes.
import posix


def take(size):
    data = b""
    while len(data) < size:
        piece = posix.read(0, size - len(data))
        if not piece:
            posix._exit(0)
        data += piece
    return data


exec(compile(take(int.from_bytes(take(4), "big")), "airlock", "exec"))
