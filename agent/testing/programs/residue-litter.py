# Leaves behind everything that code can leave behind and that is cleared between two jobs.
import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys

SECRET = "traces-of-" + "an-earlier-job"
libc = ctypes.CDLL(None)

for folder in ("/tmp", "/output", "/dev/shm"):
    os.chdir(folder)
    for name in (SECRET, "-rf", ".hidden", "new\nline", b"\xff\xfe", "n" * 255):
        with open(name, "w") as file:
            file.write(SECRET)
        os.chmod(name, 0)
    os.mkfifo("pipe")
    os.symlink("/etc/passwd", "link")
    os.symlink("/output", "folder-link")
    os.link(SECRET, "hard")
    socket.socket(socket.AF_UNIX).bind("socket")
    os.mkdir("closed")
    os.mkdir("closed/inner")
    open("closed/inner/file", "w").close()
    os.chmod("closed/inner", 0)
    os.chmod("closed", 0)
    for i in range(300):
        os.mkdir("deep")
        os.chdir("deep")
    try:
        os.setxattr(folder, "user.trace", SECRET.encode())
    except OSError:
        pass
    os.utime(folder)

for folder in ("/dev", "/dev/pts"):
    for name in os.listdir(folder):
        try:
            os.utime(os.path.join(folder, name))
        except OSError:
            pass

libc.shmget(0x1234, 4096, 0o1600)
libc.semget(0x1234, 3, 0o1600)
libc.msgget(0x1234, 0o1600)

fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)
fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)
try:
    fcntl.fcntl(1, 1031, 4096)  # F_SETPIPE_SZ
except OSError:
    pass
os.environ[SECRET] = SECRET
os.umask(0o777)
os.nice(5)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
signal.setitimer(signal.ITIMER_REAL, 3600)
memory = os.memfd_create(SECRET)
os.write(memory, SECRET.encode())

for i in range(5):
    if os.fork() == 0:
        os.setsid()
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind("\0%s-%d" % (SECRET, i))
        abstract.listen()
        tcp = socket.socket()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        os.close(1)
        signal.pause()
os.write(2, b"")
print("littered", flush=True)
sys.stdout = None
os._exit(0)
