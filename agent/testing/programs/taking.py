# Programs that take memory of the kernel which no limit of the job counts, by name: the first argument says which runs.
import ctypes
import fcntl
import os
import socket
import struct
import sys
import threading
import time


def datagrams():
    """Datagrams that nobody reads."""
    held = []
    try:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(3000):
            held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            held[-1].bind(("127.0.0.1", 0))
            for _ in range(3):
                sender.sendto(bytes(60_000), held[-1].getsockname())
    except OSError as error:
        print(len(held), error.strerror)
    time.sleep(0.5)


def timestamps():
    """A copy of each datagram waits in the error queue of its sender. What asks for it is seen by no filter: ancillary
    data.
    """
    SO_TIMESTAMPING, TX_SCHED, TX_SOFTWARE, SOFTWARE = 37, 1 << 8, 1 << 1, 1 << 4
    held = []
    try:
        for _ in range(4000):
            sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            held.append(sender)
            sender.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SCHED | TX_SOFTWARE | SOFTWARE)
            wanted = (socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("=I", TX_SCHED | TX_SOFTWARE))
            for _ in range(4):
                sender.sendmsg([bytes(60_000)], [wanted], 0, ("::1", 9))
    except OSError as error:
        print(len(held), error.strerror)
    time.sleep(0.5)


def netlink():
    """Each wrong request leaves an error with all of it in the queue of its socket, which nobody reads."""
    request = struct.pack("=IHHII", 16 + 150_000, 0x7FF0, 5, 1, 0) + bytes(150_000)
    held = []
    try:
        for _ in range(3000):
            held.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
            held[-1].send(request)
    except OSError as error:
        print(len(held), error.strerror)
    time.sleep(0.5)


def streams(how=""):
    """Streams that nobody reads, of several processes: each has its own limit of descriptors."""
    children = []
    for _ in range(12):
        child = os.fork()
        if child == 0:
            try:
                fill_streams(480, how)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def fill_streams(count, how):
    """With "sizes", their buffers are larger; with "resets", one end of each is reset."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    held = [listener]
    if how == "sizes":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    for _ in range(count):
        client = socket.socket()
        if how == "sizes":
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                client.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
        client.connect(listener.getsockname())
        server = listener.accept()[0]
        for one in (client, server):
            one.setblocking(False)
            try:
                for _ in range(16):
                    one.send(bytes(1 << 18))
            except BlockingIOError:
                pass
        if how == "resets":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        held += [client, server]
    time.sleep(2)


def filters(kind):
    """Compiled filters, as many as the host allows all of its processes together. Each thread adds long ones to its
    chain; a listener keeps the chain of a thread that has ended. Sockets have filters of their own.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    NO_NEW_PRIVS, SET_SECCOMP, SET_MODE_FILTER, NEW_LISTENER = 38, 22, 1, 8
    SECCOMP = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
    SO_ATTACH_FILTER = 26
    LOAD, RETURN_ALLOW = (0x20, 0, 0, 0), (0x06, 0, 0, 0x7FFF0000)
    count = 4096 if kind == "calls" else 1000
    code = b"".join(struct.pack("=HBBI", *line) for line in [LOAD] * (count - 1) + [RETURN_ALLOW])
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", count, ctypes.addressof(buffer))
    done, failures, held = 0, [], []

    def check(result):
        nonlocal done
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        done += 1

    def add_chain():
        libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        try:
            for _ in range(6):
                check(libc.prctl(SET_SECCOMP, 2, header, 0, 0))
            check(libc.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER, header))
        except OSError as error:
            failures.append(error)

    while not failures and len(held) < 1000:
        if kind == "calls":
            thread = threading.Thread(target=add_chain)
            thread.start()
            thread.join()
            held.append(None)
            continue
        try:
            held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            held[-1].setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, header)
            done += 1
        except OSError as error:
            failures.append(error)
    print(done, failures and failures[0].strerror)
    time.sleep(0.5)


def pressure():
    """Each trigger costs the kernel a wait when its descriptor is closed, also that of a killed process."""
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


def locks():
    """Locks of single bytes: the kernel keeps each in memory that it charges to nobody."""
    for _ in range(7):
        if os.fork() == 0:
            break
    for number in range(500):
        file = os.open("/tmp/%d-%d" % (os.getpid(), number), os.O_RDWR | os.O_CREAT)
        for at in range(1000):
            fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * at, 1, 0))


globals()[sys.argv[1]](*sys.argv[2:])
