"""Does what programs need the kernel for; prints a JSON object of failures, name to error."""

import asyncio
import concurrent.futures
import ctypes
import faulthandler
import fcntl
import json
import mmap
import multiprocessing
import os
import pty
import resource
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import shared_memory


def double(number):
    return 2 * number


def processes(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.map(double, range(10)) == list(range(0, 20, 2))
    queue, lock = context.Queue(), context.Lock()
    child = context.Process(target=queue.put, args=(1,))
    with lock:
        child.start()
    assert queue.get(timeout=30) == 1
    child.join()


def fork():
    processes("fork")


def spawn():
    processes("spawn")


def forkserver():
    processes("forkserver")


def executors():
    for kind in (concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor):
        with kind(2) as executor:
            assert list(executor.map(double, [1, 2])) == [2, 4]


def shared():
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[0] = 1
    memory.close()
    memory.unlink()


def asynchronous():
    async def main():
        child = await asyncio.create_subprocess_exec("true")
        assert await child.wait() == 0
        shell = await asyncio.create_subprocess_shell("cat", stdin=-1, stdout=-1)
        assert (await shell.communicate(b"x"))[0] == b"x"
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
        server.close()
        assert await asyncio.to_thread(double, 1) == 2

    asyncio.run(main())


def database():
    with tempfile.TemporaryDirectory() as folder:
        writer = sqlite3.connect(folder + "/db")
        assert writer.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        writer.execute("CREATE TABLE t (x)")
        writer.execute("INSERT INTO t VALUES (1)")
        writer.commit()
        assert sqlite3.connect(folder + "/db").execute("SELECT x FROM t").fetchall() == [(1,)]


def threads():
    results = []
    workers = [threading.Thread(target=results.append, args=(i,)) for i in range(20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(results) == list(range(20))


def subprocesses():
    assert subprocess.run(["sh", "-c", "echo $((6 * 7))"], capture_output=True).stdout == b"42\n"
    subprocess.run([sys.executable, "-c", ""], check=True, start_new_session=True)
    assert subprocess.run("sleep 60 & kill $!; wait $! 2>/dev/null", shell=True).returncode == 143
    assert os.waitstatus_to_exitcode(os.system("exit 3")) == 3
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def memory():
    with mmap.mmap(-1, 1 << 20) as private:
        private[:4] = b"data"
        private.madvise(mmap.MADV_DONTNEED)
        private.resize(1 << 21)
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    fd = os.memfd_create("x")
    os.truncate(fd, 4096)
    mmap.mmap(fd, 4096).close()


def signals():
    seen = []
    for number in (signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    signal.pause()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert seen == [signal.SIGALRM, signal.SIGUSR1]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    signal.raise_signal(signal.SIGUSR2)
    assert signal.sigtimedwait([signal.SIGUSR2], 1).si_signo == signal.SIGUSR2


def waiting():
    read, write = os.pipe2(os.O_CLOEXEC)
    os.write(write, b"x")
    assert select.select([read], [], [], 1)[0] == [read]
    poll = select.poll()
    poll.register(read)
    assert poll.poll(1000)
    with select.epoll() as epoll:
        epoll.register(read, select.EPOLLIN)
        assert epoll.poll(1)


def libc_calls():
    libc = ctypes.CDLL(None, use_errno=True)
    for call, *arguments in (
        ("eventfd", 0, 0),
        ("timerfd_create", 1, 0),
        ("epoll_create1", 0),
        ("shmget", 0, 4096, 0o1600),
        ("semget", 0, 1, 0o1600),
        ("prctl", 15, b"name", 0, 0, 0),
    ):
        assert getattr(libc, call)(*arguments) >= 0, (call, os.strerror(ctypes.get_errno()))


def inotify():
    assert ctypes.CDLL(None).inotify_init1(0) >= 0


def files():
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/x"
        with open(path, "wb") as file:
            file.write(b"x" * 10000)
            os.fsync(file.fileno())
            os.posix_fallocate(file.fileno(), 0, 20000)
        os.chmod(path, 0o600)
        os.utime(path)
        os.link(path, path + "2")
        os.replace(path + "2", path + "3")
        os.symlink(path, path + "4")
        os.mkfifo(path + "5")
        os.statvfs(path)
        os.sync()
        with open(path, "rb") as source, open(path + "6", "wb") as target:
            assert os.sendfile(target.fileno(), source.fileno(), 0, 10000) == 10000
            assert os.preadv(source.fileno(), [bytearray(10)], 0) == 10
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert len(os.listdir(folder)) == 5


def copying():
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
        source.write(b"x" * 100)
        source.flush()
        assert os.copy_file_range(source.fileno(), target.fileno(), 100, 0) == 100


def sockets():
    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [0])
    data, descriptors, _, _ = socket.recv_fds(right, 1, 1)
    assert (data, len(descriptors)) == (b"x", 1)
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_UNIX, "/tmp/socket"),
        (socket.AF_UNIX, "\0abstract"),
    ):
        with socket.socket(family) as server:
            server.bind(address)
            server.listen()
            with socket.socket(family) as client:
                client.connect(server.getsockname())
                server.accept()[0].send(b"x")
                assert client.recv(1) == b"x"
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP).close()


def names():
    assert socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    assert os.listdir("/sys/class/net") == ["lo"]


def usage():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.prlimit(0, resource.RLIMIT_NOFILE)
    resource.getrusage(resource.RUSAGE_THREAD)
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.nice(1)
    os.getloadavg()
    os.getpriority(os.PRIO_PROCESS, 0)
    faulthandler.enable()
    faulthandler.dump_traceback_later(60)
    faulthandler.cancel_dump_traceback_later()


def clocks():
    for clock in (time.CLOCK_MONOTONIC, time.CLOCK_REALTIME, time.CLOCK_THREAD_CPUTIME_ID):
        time.clock_gettime(clock)
        time.clock_getres(clock)
    time.sleep(0.001)
    time.localtime()


def randomness():
    assert len(os.getrandom(16)) == 16
    assert len(os.urandom(16)) == 16


def terminals():
    # Not pty.spawn: under gVisor a terminal does not end with its last process.
    master, slave = pty.openpty()
    assert os.isatty(slave)
    os.write(slave, b"x")
    assert os.read(master, 10) == b"x"


if __name__ == "__main__":
    failed = {}
    tasks = [asynchronous, clocks, copying, database, executors, files, fork, forkserver, inotify]
    tasks += [libc_calls, memory, names, randomness, shared, signals, sockets, spawn, subprocesses]
    tasks += [terminals, threads, usage, waiting]
    for task in tasks:
        try:
            task()
        except BaseException as error:
            failed[task.__name__] = repr(error)
    print(json.dumps(failed))
